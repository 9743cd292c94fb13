package podcgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// Some machines are started without the controller of memory: a runtime would refuse what is only its.
func TestMachinesThatDoNotLimitMemory(t *testing.T) {
	for controllers, want := range map[string]bool{"cpuset cpu io memory pids\n": true, "cpuset cpu io pids\n": false, "": false} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte(controllers), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := limitsMemory(root); got != want {
			t.Errorf("with the controllers %q: %v", controllers, got)
		}
	}
	if limitsMemory(t.TempDir()) {
		t.Error("control groups of version 1 count as well")
	}
}

// Kernels without swap have no limit of it: a runtime would refuse one.
func TestMachinesThatDoNotLimitSwap(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "system.slice"), 0o755); err != nil {
		t.Fatal(err)
	}
	if limitsSwap(root) {
		t.Error("groups without a limit of swap count as well")
	}
	if err := os.WriteFile(filepath.Join(root, "system.slice", "memory.swap.max"), []byte("max\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !limitsSwap(root) {
		t.Error("groups with a limit of swap do not count")
	}
}
