//go:build integration

package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	vm "github.com/virtual-kubelet/virtual-kubelet/providers/machine"
)

// Each pod has a machine of its own, a network namespace: the node, the agent in a machine and a
// whole machine are killed in turn, and all at once.
func TestMachine(t *testing.T) {
	how := plan{rounds: (*rounds + 3) / 4, longest: 6 * time.Second, between: 2 * time.Second, size: 8, kept: 2, noHostPath: true}
	testCrashes(t, newMachines(t), how)
}

// The machines of this test are not those of others on this host.
const (
	machineNet    = "10.231.9"
	machinePrefix = "vkx" // of their namespaces and devices
	machineBridge = "vkcrash"
)

// machines are network namespaces of this machine. In each a shell starts the agent again when it
// has ended.
type machines struct {
	dir     string // with a directory for each
	state   string // of the node
	script  string
	program string // the agent's
	shell   string
	port    int // of the node, for machines
}

var _ crowd = (*machines)(nil)

func newMachines(t *testing.T) *machines {
	t.Helper()
	text, err := os.ReadFile("../../providers/machine/testdata/netns-machines")
	must(t, err)
	script := string(text)
	for _, r := range [][2]string{{"net=10.231.0 ", "net=" + machineNet + " "}, {"bridge=vkmachines", "bridge=" + machineBridge}, {"'vkm%s'", "'" + machinePrefix + "%s'"}} {
		if !strings.Contains(script, r[0]) {
			t.Fatalf("the script has no %s", r[0])
		}
		script = strings.Replace(script, r[0], r[1], 1)
	}
	dir, err := os.MkdirTemp("", "crash-machines-")
	must(t, err)
	must(t, os.Chmod(dir, 0o711)) // containers run as other users
	ports, err := daemon.FreePorts(1)
	must(t, err)
	files := t.TempDir()
	m := &machines{dir: dir, state: t.TempDir(), script: filepath.Join(files, "machines"), shell: filepath.Join(files, "agent"), port: ports[0]}
	m.program, err = filepath.Abs(filepath.Join(bin, "virtual-kubelet"))
	must(t, err)
	must(t, os.WriteFile(m.script, []byte(script), 0o700))
	must(t, os.WriteFile(m.shell, []byte("#!/bin/sh\nwhile :; do "+m.program+` "$@"; sleep 0.1; done`+"\n"), 0o700))
	t.Cleanup(func() {
		out, err := exec.Command(m.script, m.shell, m.dir, "clean").CombinedOutput()
		if err != nil {
			t.Errorf("cannot clean up: %v: %s", err, out)
		}
		must(t, os.RemoveAll(m.dir))
	})
	return m
}

func (*machines) provider() string { return "machine" }

func (*machines) image(*testing.T) string { return "example.com/shell:1" }

// brokenOff is empty: the runtime is part of the process that is killed.
func (*machines) brokenOff(context.Context) (map[string]container, error) { return nil, nil }

func (m *machines) config() any {
	return map[string]any{
		"cluster": "crash", "stateDir": m.state, "refresh": "1s", "missingTimeout": "5s", "replaceLost": true,
		"exec":      map[string]any{"command": []string{m.script, m.shell, m.dir}},
		"bootstrap": map[string]any{"listen": fmt.Sprintf("0.0.0.0:%d", m.port), "url": fmt.Sprintf("https://%s.1:%d", machineNet, m.port)},
	}
}

func (*machines) running(context.Context) (map[container]sets.Set[string], error) {
	return runningProcesses()
}

func (m *machines) left(t *testing.T) []string {
	t.Helper()
	var left []string
	for kind, pattern := range map[string]string{
		"machine":           filepath.Join(m.dir, "[^.]*"),
		"record":            filepath.Join(m.state, "machines", "*"),
		"network namespace": "/run/netns/" + machinePrefix + "*",
		"network device":    "/sys/class/net/" + machinePrefix + "*",
		"control group":     "/sys/fs/cgroup/*/" + machinePrefix + "*",
	} {
		found, err := filepath.Glob(pattern)
		must(t, err)
		for _, path := range found {
			left = append(left, kind+" "+path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if path := strings.Fields(line)[4]; strings.HasPrefix(path, m.dir+"/") {
			left = append(left, "mount "+path)
		}
	}
	for pid, command := range processesWith(t, m.dir+"/", "") {
		left = append(left, "process "+strconv.Itoa(pid)+" "+command)
	}
	running, err := runningProcesses()
	must(t, err)
	for c := range running {
		left = append(left, "processes of "+c.name+" of "+string(c.uid))
	}
	return left
}

func (m *machines) others(t *testing.T, _ string, p *population) []victim {
	return []victim{&anyAgent{t, m, p.random}, &anyMachine{t, m, p}}
}

// anyAgent is the agent in some machine, which is started again there.
type anyAgent struct {
	t      *testing.T
	m      *machines
	random *rand.Rand
}

func (*anyAgent) start() {}
func (*anyAgent) stop()  {}

func (a *anyAgent) kill() {
	a.t.Helper()
	agents := processesWith(a.t, a.m.program+" agent ", a.m.dir+"/")
	maps.DeleteFunc(agents, func(_ int, command string) bool { return !strings.HasPrefix(command, a.m.program) }) // the shells
	if pids := slices.Sorted(maps.Keys(agents)); len(pids) > 0 {
		_ = unix.Kill(pids[a.random.IntN(len(pids))], unix.SIGKILL) // fails if it has just ended
	}
}

// anyMachine is some machine with all that runs in it, which stays as one that has ended.
type anyMachine struct {
	t *testing.T
	m *machines
	p *population
}

func (*anyMachine) start() {}
func (*anyMachine) stop()  {}

func (a *anyMachine) kill() {
	a.t.Helper()
	out, err := exec.Command(a.m.script, a.m.shell, a.m.dir, "list").Output()
	must(a.t, err)
	var list struct{ Machines []vm.Machine }
	must(a.t, json.Unmarshal(out, &list))
	for _, i := range a.p.random.Perm(len(list.Machines)) {
		if m := list.Machines[i]; m.State == vm.Running && a.p.lose(types.UID(m.Tags[podgroup.TagUID])) {
			halt(m.ID)
			return
		}
	}
}

// halt ends all that runs in a network namespace, which may be gone already.
func halt(namespace string) {
	for {
		out, err := exec.Command("ip", "netns", "pids", namespace).Output()
		pids := strings.Fields(string(out))
		if err != nil || len(pids) == 0 {
			return
		}
		for _, text := range pids {
			if pid, err := strconv.Atoi(text); err == nil {
				_ = unix.Kill(pid, unix.SIGKILL) // fails if it has just ended
			}
		}
	}
}
