package runtime

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// A container's own directories count with all that is in them, and are not read when
// nobody waits for that any more.
func TestUsageOfDirs(t *testing.T) {
	c := &container{dir: t.TempDir()}
	for _, dir := range []string{tmpDir + "/a/b", workDir} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.path(tmpDir), "a", "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var all, none usage
	all.ofDirs(t.Context(), c)
	if all.diskFiles != 5 || all.diskBytes < 1<<20 || all.diskBytes > 1<<20+64<<10 {
		t.Errorf("%d bytes in %d files and directories", all.diskBytes, all.diskFiles)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if none.ofDirs(ctx, c); none.diskFiles >= all.diskFiles {
		t.Errorf("%d files and directories are counted for nobody", none.diskFiles)
	}
}
