package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func usageOf(t *testing.T, dir string) int64 {
	t.Helper()
	bytes, err := Usage(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func writeZeros(t *testing.T, path string, bytes int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestUsage(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	writeZeros(t, filepath.Join(outside, "large"), 8<<20)
	if got := usageOf(t, filepath.Join(dir, "none")); got != 0 {
		t.Errorf("what does not exist takes %d bytes", got)
	}
	if got := usageOf(t, filepath.Join(outside, "large")); got < 8<<20 {
		t.Errorf("a file takes %d bytes", got)
	}
	begin := usageOf(t, dir)
	writeZeros(t, filepath.Join(dir, "file"), 1<<20)
	if err := os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "second")); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{outside, filepath.Join(outside, "large"), "/", "..", "."} {
		if err := os.Symlink(target, filepath.Join(dir, "link"+strconv.Itoa(len(target)))); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(dir, "a", "b", "c")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	writeZeros(t, filepath.Join(below, "file"), 1<<20)
	writeZeros(t, filepath.Join(dir, "a", "file"), 1<<20)
	if got := usageOf(t, dir) - begin; got < 3<<20 || got > 3<<20+1<<17 {
		t.Errorf("three files of 1 MiB take %d bytes", got)
	}
	sparse := filepath.Join(dir, "sparse")
	writeZeros(t, sparse, 0)
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := usageOf(t, dir) - begin; got > 4<<20 {
		t.Errorf("with a sparse file it is %d bytes", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Usage(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// A tree that is deeper than a path may be long is measured too: else its content
// would be free.
func TestUsageOfADeepTree(t *testing.T) {
	const name, levels = "directory", 600
	dir := t.TempDir()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(at) })
	for range levels {
		above := at
		if err := unix.Mkdirat(above, name, 0o700); err != nil {
			t.Fatal(err)
		}
		if at, err = unix.Openat(above, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // the deepest first
			_ = unix.Unlinkat(above, name, unix.AT_REMOVEDIR)
			_ = unix.Close(above)
		})
	}
	fd, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	bottom := at
	t.Cleanup(func() { _ = unix.Unlinkat(bottom, "file", 0) })
	if _, err := unix.Write(fd, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	if got := usageOf(t, dir); got < 1<<20 {
		t.Errorf("it takes %d bytes", got)
	}
}
