package runtime

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// A container's own directories count with all that is in them, in however many files.
func TestUsageOfDirs(t *testing.T) {
	t.Parallel()
	const large, more = 8 << 20, 100_001
	dir, err := os.MkdirTemp("/dev/shm", "dirs") // where so many files take little time
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r, c := &Runtime{ctx: t.Context()}, &container{dir: dir}
	for _, dir := range []string{tmpDir + "/a/b", workDir} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.path(tmpDir), "a", "file"), make([]byte, large), 0o600); err != nil {
		t.Fatal(err)
	}
	var used usage
	periodic.Await(t.Context(), r.startDisk(c))
	disk, _ := c.disk.Last()
	used.ofDirs(disk)
	if used.diskFiles != 5 || used.diskBytes < large || used.diskBytes > large+64<<10 {
		t.Errorf("%d bytes in %d files and directories", used.diskBytes, used.diskFiles)
	}
	for i := range more {
		file, err := os.Create(filepath.Join(c.path(tmpDir), strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	used = usage{}
	parts := 0
	used.ofDirs(r.measureDirs(t.Context(), c, disk, func(part map[string]filetree.Used) {
		parts++
		if part[tmpDir].Bytes < large || part[workDir] != disk[workDir] {
			t.Errorf("in part it has %v, before %v", part, disk)
		}
	}))
	if parts == 0 {
		t.Error("what was counted so far is not known")
	}
	if used.diskFiles != more+5 || used.diskBytes < large {
		t.Errorf("with many files, %d bytes in %d files and directories", used.diskBytes, used.diskFiles)
	}
}

// A container whose directories take long to measure takes no time from the others, and what it
// has on disk is not nothing: it is left out until it was measured.
func TestUnmeasuredDirsAreNotEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{ctx: t.Context(), containers: map[string]*container{}}
		for id, age := range map[string]time.Duration{"slow": 0, "fast": time.Minute} { // the slow one comes first
			c := &container{id: id, dir: t.TempDir(), created: time.Now().Add(-age), config: &runtimeapi.ContainerConfig{}, started: &shim.Started{}, spec: &shim.Spec{}}
			r.containers[id] = c
			if err := os.MkdirAll(c.path(tmpDir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		ends := make(chan struct{})
		busy := r.containers["slow"].disk.Start(0, func(f func()) { go f() }, func(_ map[string]filetree.Used, soFar func(map[string]filetree.Used)) map[string]filetree.Used {
			soFar(map[string]filetree.Used{tmpDir: {Bytes: 1 << 20, Inodes: 1}})
			<-ends
			return map[string]filetree.Used{tmpDir: {Bytes: 2 << 20, Inodes: 2}}
		})
		layers := func() (slow, fast *runtimeapi.FilesystemUsage) {
			all, err := r.ListContainerStats(t.Context(), nil)
			if err != nil || len(all) != 2 {
				t.Fatalf("statistics are %v: %v", all, err)
			}
			return all[0].WritableLayer, all[1].WritableLayer
		}
		if slow, fast := layers(); slow != nil || fast.GetInodesUsed().GetValue() != 1 {
			t.Errorf("meanwhile the slow one has %v, and the other %v", slow, fast)
		}
		close(ends)
		<-busy
		if slow, _ := layers(); slow == nil {
			t.Error("what was measured is left out")
		}
	})
}

// What can be measured in part only does not hide what a container uses.
func TestUsageOfDirsInPart(t *testing.T) {
	r, c := &Runtime{ctx: t.Context()}, &container{dir: t.TempDir()}
	if err := os.MkdirAll(c.path(tmpDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.path(tmpDir), "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	soFar := func(map[string]filetree.Used) {}
	whole := r.measureDirs(t.Context(), c, nil, soFar)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if part := r.measureDirs(ended, c, whole, soFar); part[tmpDir] != whole[tmpDir] || part[tmpDir].Bytes < 1<<20 {
		t.Errorf("it has %v, and in part %v", whole, part)
	}
}
