package runtime

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
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
	used.ofDirs(r.diskUse(t.Context(), c))
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
	used.ofDirs(r.measureDirs(t.Context(), c, nil))
	if used.diskFiles != more+5 || used.diskBytes < large {
		t.Errorf("with many files, %d bytes in %d files and directories", used.diskBytes, used.diskFiles)
	}
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
	whole := r.measureDirs(t.Context(), c, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if part := r.measureDirs(ended, c, whole); part[tmpDir] != whole[tmpDir] || part[tmpDir].Bytes < 1<<20 {
		t.Errorf("it has %v, and in part %v", whole, part)
	}
}
