package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// A process that is killed while it tries out whether it can make groups leaves one.
func TestProbesOfKilledProcessesGo(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "probe-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !writable(dir) {
		t.Error("groups cannot be made")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}
