package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// unifiedHere is a group of this machine's v2 hierarchy, below one for tests.
func unifiedHere(t *testing.T) (Group, []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes control groups: run it as root")
	}
	mounts, err := mounted("/proc/self/mountinfo")
	if err != nil || mounts[unified] == "" {
		t.Fatalf("this machine has no control groups of version 2 (%v): mount -t cgroup2 none /sys/fs/cgroup/unified", err)
	}
	parent := fmt.Sprintf("/vk-test-unified-%d", os.Getpid())
	h := Detect(parent)
	if h == nil || h.dirs[unified] == "" {
		t.Fatalf("no groups can be made in %s", mounts[unified])
	}
	t.Cleanup(func() { h.Tidy() })
	g := Group{unified: h.Group("container")[unified]}
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Kill()
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	controllers, err := os.ReadFile(filepath.Join(g[unified], "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	return g, strings.Fields(string(controllers))
}

// inGroup starts a shell that waits until it is in a group.
func inGroup(t *testing.T, g Group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read go; "+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Error(err)
	}
	return cmd
}

// The real hierarchy kills all processes of a group at once, those that are being
// started too.
func TestUnifiedKill(t *testing.T) {
	g, _ := unifiedHere(t)
	cmd := inGroup(t, g, "for i in $(seq 500); do sleep 1000 & done; wait")
	for end := time.Now().Add(time.Minute); len(g.Processes()) < 5 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if len(g.Processes()) < 5 || !g.Kill() {
		t.Errorf("the group has %d processes, and cannot be killed at once", len(g.Processes()))
	}
	_ = cmd.Wait()
	for end := time.Now().Add(time.Minute); len(g.Processes()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left are %v", g.Processes())
		}
	}
}

// The real hierarchy takes the limits for which it has controllers, and names as not
// enforced those for which it has none: they may be in hierarchies of version 1.
func TestUnifiedLimits(t *testing.T) {
	g, controllers := unifiedHere(t)
	h := &Hierarchies{dirs: map[string]string{unified: filepath.Dir(g[unified])}}
	want := Limits{CPUQuota: 50000, CPUPeriod: 100000, Memory: 64 << 20, Processes: 20}
	if err := g.Limit(h.Enforced(want)); err != nil {
		t.Fatal(err)
	}
	files := map[string][2]string{
		"pids.max": {"pids", "20"}, "memory.swap.max": {"memory", "0"}, "memory.max": {"memory", strconv.Itoa(64 << 20)}, "memory.oom.group": {"memory", "1"}, "cpu.max": {"cpu", "50000 100000"},
	}
	for name, f := range files {
		got, err := os.ReadFile(filepath.Join(g[unified], name))
		switch has := slices.Contains(controllers, f[0]); {
		case name == "memory.swap.max" && errors.Is(err, os.ErrNotExist): // the kernel may count no swap
		case has && strings.TrimSpace(string(got)) != f[1]:
			t.Errorf("%s is %q, %v; want %s", name, got, err, f[1])
		case !has && err == nil:
			t.Errorf("%s is there without its controller", name)
		case !has && f[0] != "pids" && !slices.Contains(h.Unenforced(want), f[0]):
			t.Errorf("the limit of %s is not named as one that is not enforced", f[0])
		}
	}
	if slices.Contains(controllers, "pids") {
		// A shell whose fork fails may end: the kernel counts those that it refused.
		out := inGroup(t, g, "for i in $(seq 50); do sleep 1000 & done; wait")
		refused := func() bool {
			events, err := os.ReadFile(filepath.Join(g[unified], "pids.events"))
			return err == nil && !strings.Contains(string(events), "max 0\n")
		}
		for end := time.Now().Add(time.Minute); !refused(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no process above the limit was refused")
			}
		}
		if count := len(g.Processes()); count < 15 || count > 20 {
			t.Errorf("with 20 processes at most there are %d", count)
		}
		g.Kill()
		_ = out.Wait()
	}
	if slices.Contains(controllers, "memory") {
		// All of the group goes with the process that needs too much.
		out := inGroup(t, g, `sleep 1000 & awk 'BEGIN { s = "more"; while (1) s = s s }'; exit 0`)
		if err := out.Wait(); err == nil {
			t.Error("a process outlives another of its group that was killed for want of memory")
		}
		if g.OOMKills() == 0 {
			t.Error("no process was killed for want of memory")
		}
	}
}

// The parent of all groups, which another process with the same has removed, is made again
// with its controllers.
func TestUnifiedParentIsMadeAgain(t *testing.T) {
	g, controllers := unifiedHere(t)
	h := &Hierarchies{dirs: map[string]string{unified: filepath.Dir(g[unified])}}
	all := Limits{CPUQuota: 50000, Memory: 64 << 20}
	before := h.Unenforced(all)
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	h.Tidy()
	if after := h.Unenforced(all); !slices.Equal(after, before) {
		t.Errorf("not enforced are %q, and were %q", after, before)
	}
	h.Tidy()
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(filepath.Join(g[unified], "cgroup.controllers"))
	if err != nil || !slices.Equal(strings.Fields(string(now)), controllers) {
		t.Errorf("the group has the controllers %q, and had %q (%v)", now, controllers, err)
	}
}
