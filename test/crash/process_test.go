//go:build integration

package crash

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestProcess(t *testing.T) { testCrashes(t, newProcess(t), usual()) }

// processMachine is this machine.
type processMachine struct{ footprint }

func newProcess(t *testing.T) *processMachine {
	t.Helper()
	root, err := os.MkdirTemp("", "crash-process-")
	must(t, err)
	must(t, os.Chmod(root, 0o711)) // containers run as other users
	m := &processMachine{footprintIn(t, root)}
	t.Cleanup(func() { m.end(t) })
	return m
}

func (*processMachine) provider() string { return "process" }

// brokenOff is empty: the runtime is part of the process that is killed.
func (*processMachine) brokenOff(context.Context) (map[string]container, error) { return nil, nil }

func (m *processMachine) config() any {
	return map[string]any{
		"root": m.root, "cgroupParent": m.cgroup, "hostPaths": []string{os.TempDir()}, "cpu": "100", "memory": "100Gi",
		"runtime":      map[string]any{"isolation": "namespaces", "sharedNetwork": true},
		"evictionHard": map[string]string{}, // regardless of the free space of the machine's disk
	}
}

func (*processMachine) image(*testing.T) string { return "example.com/shell:1" }

func (*processMachine) running(context.Context) (map[container]sets.Set[string], error) {
	return runningProcesses()
}

// runningProcesses finds containers by the environment of their processes.
func runningProcesses() (map[container]sets.Set[string], error) {
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	found := map[container]sets.Set[string]{}
	for _, path := range paths {
		content, _ := os.ReadFile(path) // the process may have ended
		env := map[string]string{}
		for _, variable := range bytes.Split(content, []byte{0}) {
			name, value, _ := bytes.Cut(variable, []byte("="))
			env[string(name)] = string(value)
		}
		id, key := env["VIRTUAL_KUBELET_CONTAINER_ID"], container{types.UID(env["POD_UID"]), env["CONTAINER"]}
		if id == "" || key.name == "" {
			continue
		}
		if found[key] == nil {
			found[key] = sets.New[string]()
		}
		found[key].Insert(id)
	}
	return found, nil
}

func (m *processMachine) left(t *testing.T) []string {
	t.Helper()
	left := m.footprint.left(t)
	for _, kind := range []string{"containers", "sandboxes"} {
		entries, err := os.ReadDir(filepath.Join(m.root, "runtime", kind))
		must(t, err)
		for _, e := range entries {
			left = append(left, kind+" "+e.Name())
		}
	}
	running, err := m.running(t.Context())
	must(t, err)
	for c := range running {
		left = append(left, "processes of "+c.name+" of "+string(c.uid))
	}
	for _, command := range processesWith(t, m.root, "vk-process-shim") {
		left = append(left, "shim "+command)
	}
	return left
}

// end leaves nothing on the machine, also if the test has failed: with their
// shims, containers end.
func (m *processMachine) end(t *testing.T) {
	for pid := range processesWith(t, m.root, "vk-process-shim") {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
