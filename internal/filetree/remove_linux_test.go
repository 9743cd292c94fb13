package filetree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
}

// deepen makes a tree of a number of levels, and leaves a file at each hundredth.
func deepen(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for i := range levels {
		must(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		_ = unix.Close(fd)
		fd = next
		if i%100 == 0 {
			must(t, unix.Symlinkat("nowhere", fd, "link"))
		}
	}
	must(t, unix.Close(fd))
}

// A tree of 20 000 levels goes, with few descriptors.
func TestRemoveDeep(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/tree", 0o755))
	deepen(t, dir+"/tree", 20000)
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: limit.Max}))
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	must(t, Remove(dir, "tree"))
	isGone(t, dir+"/tree")
}

// A directory with very many entries goes, and takes little memory.
func TestRemoveWide(t *testing.T) {
	const entries = 10000
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/tree", 0o755))
	must(t, os.WriteFile(dir+"/tree/0", nil, 0o600))
	for i := range entries {
		if err := os.Symlink("x", fmt.Sprintf("%s/tree/%s-%d", dir, strings.Repeat("n", 100), i)); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	must(t, Remove(dir, "tree"))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 8<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	isGone(t, dir+"/tree")
}

// A removal ends with its context, and another one goes on.
func TestRemoveUntil(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/tree", 0o755))
	deepen(t, dir+"/tree", 100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RemoveUntil(ctx, dir, "tree"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir + "/tree/d"); err != nil {
		t.Error(err)
	}
	must(t, RemoveUntil(t.Context(), dir, "tree"))
	isGone(t, dir+"/tree")
}

// Links are removed, and not what they lead to; directories without rights are
// emptied; what is not there is no error.
func TestRemoveOddities(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(outside+"/precious", []byte("x"), 0o600))
	must(t, os.MkdirAll(dir+"/tree/locked/inner", 0o755))
	must(t, os.WriteFile(dir+"/tree/locked/inner/file", nil, 0))
	must(t, os.WriteFile(dir+"/tree/no\xfftext", nil, 0o600))
	must(t, os.Symlink(outside, dir+"/tree/locked/link"))
	must(t, unix.Mkfifo(dir+"/tree/pipe", 0o600))
	must(t, os.Chmod(dir+"/tree/locked", 0))
	must(t, Remove(dir, "tree"))
	isGone(t, dir+"/tree")
	must(t, Remove(dir, "tree"))
	must(t, Remove(dir+"/none", "tree"))
	must(t, os.Symlink(outside, dir+"/link"))
	must(t, Remove(dir, "link"))
	isGone(t, dir+"/link")
	if _, err := os.Stat(outside + "/precious"); err != nil {
		t.Error(err)
	}
}

// What is mounted in the tree stays, and is an error.
func TestRemoveEntersNoOtherFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	dir := t.TempDir()
	at := filepath.Join(dir, "tree", "mounted")
	must(t, os.MkdirAll(at, 0o755))
	must(t, unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"))
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	must(t, os.WriteFile(at+"/precious", nil, 0o600))
	if err := Remove(dir, "tree"); err == nil || !strings.Contains(err.Error(), "another file system") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(at + "/precious"); err != nil {
		t.Error(err)
	}
}

// Directories that are moved away while they are removed lead nowhere else.
func TestRemoveFromUnderAMover(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(outside+"/precious", nil, 0o600))
	must(t, os.Mkdir(dir+"/tree", 0o755))
	deepen(t, dir+"/tree", 2000)
	stop, done := make(chan struct{}), make(chan struct{})
	must(t, os.Symlink(outside, dir+"/tree/link"))
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir+"/tree/d/d", unix.AT_FDCWD, dir+"/tree/link", unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 100 {
		if Remove(dir, "tree") == nil {
			break
		}
	}
	close(stop)
	<-done
	must(t, Remove(dir, "tree"))
	if _, err := os.Stat(outside + "/precious"); err != nil {
		t.Error(err)
	}
}
