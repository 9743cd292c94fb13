package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
)

// Of a process on the same machine it is known when it has ended, of all others
// not, but for an earlier container of the same pod.
func TestProcessHasEnded(t *testing.T) {
	us := newProcessID("pod")
	change := func(f func(*processID)) string {
		other := us
		f(&other)
		return other.String()
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(child.Process.Pid)
	started, err := startOf(procfs, pid)
	if err != nil {
		t.Fatal(err)
	}
	running := change(func(o *processID) { o.pid, o.started = pid, started })
	for name, c := range map[string]struct {
		other string
		ended bool
	}{
		"this one":                         {us.String(), false},
		"a child":                          {running, false},
		"an earlier one with the same pid": {change(func(o *processID) { o.started = "1" }), true},
		"one that is gone":                 {change(func(o *processID) { o.pid = "4194999" }), true},
		"of a host with _ in its name":     {change(func(o *processID) { o.host, o.pid = "hpc_node_1", "4194999" }), true},
		"before a reboot":                  {change(func(o *processID) { o.boot, o.pid = "other", "4194999" }), false},
		"of another container":             {change(func(o *processID) { o.space, o.pod, o.pid = "1", "other", "4194999" }), false},
		"of another container of the pod":  {change(func(o *processID) { o.space, o.pid = "1", "4194999" }), true},
		"of which the start is not known":  {change(func(o *processID) { o.started, o.pid = "", "4194999" }), false},
		"of another program":               {"somebody else", false},
		"no identity":                      {"", false},
	} {
		if got := processHasEnded("pod")(c.other); got != c.ended {
			t.Errorf("%s: ended is %v, want %v", name, got, c.ended)
		}
	}
	if other := change(func(o *processID) { o.space, o.pod, o.pid = "1", "", "4194999" }); processHasEnded("")(other) {
		t.Error("two containers without the UID of their pods: one is taken for an earlier one of the other")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// It is a zombie until it is waited for.
	for !processHasEnded("pod")(running) {
		runtime.Gosched()
	}
	_ = child.Wait() // says that it was killed
	if !processHasEnded("pod")(running) {
		t.Error("the child has not ended, want that it has")
	}
}

// A process of another user, which a /proc mounted with hidepid does not have, has not ended.
func TestHiddenProcessHasNotEnded(t *testing.T) {
	hidden := t.TempDir()
	if started, err := startOf(hidden, strconv.Itoa(os.Getpid())); err == nil || errors.Is(err, os.ErrProcessDone) {
		t.Errorf("one that runs: got %q, %v, want that it is not known", started, err)
	}
	if _, err := startOf(hidden, "4194999"); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("one that is gone: got %v, want %v", err, os.ErrProcessDone)
	}
	for _, pid := range []string{"0", "-1", "", "x"} {
		if started, err := startOf(hidden, pid); err == nil || errors.Is(err, os.ErrProcessDone) {
			t.Errorf("process %q: got %q, %v, want that it is not known", pid, started, err)
		}
	}
}

// The name of the host is one part, also with _ in it.
func TestProcessIDsOfHostNames(t *testing.T) {
	for _, host := range []string{"a", "a_b", "a_b_c", "_", ""} {
		id := newProcessID("pod")
		id.host = host
		if got, ok := parseProcessID(id.String()); !ok || got != id {
			t.Errorf("%s is parsed as %+v, %v", id, got, ok)
		}
	}
}
