package filetree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A tree of very many names is read until nobody waits for that any more, be they directories.
func TestMeasureManyNames(t *testing.T) {
	dir := t.TempDir()
	const names = 3 * readBatch
	for i := range names {
		must(t, os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(dir, "0", "file"), []byte("x"), 0o600))
	if used, err := Measure(t.Context(), dir); err != nil || used.Inodes != names+2 {
		t.Errorf("there are %d inodes, want %d: %v", used.Inodes, names+2, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if used, err := Measure(ctx, dir); !errors.Is(err, context.Canceled) || used.Inodes != 1 {
		t.Errorf("after the end of its context there are %d inodes: %v", used.Inodes, err)
	}
}

// What is remembered of files does not grow with those that have one name, or whose names were all seen,
// and has a bound. Each file counts once all the same.
func TestMeasureRemembersFewFiles(t *testing.T) {
	tree := func(files, names int) (dir string) {
		dir = t.TempDir()
		for name := range names {
			below := filepath.Join(dir, strconv.Itoa(name))
			must(t, os.Mkdir(below, 0o700))
			for file := range files {
				of := filepath.Join(dir, "0", strconv.Itoa(file))
				if name == 0 {
					must(t, os.WriteFile(of, []byte("x"), 0o600))
				} else {
					must(t, os.Link(of, filepath.Join(below, strconv.Itoa(file))))
				}
			}
		}
		return dir
	}
	for _, c := range []struct {
		files, names, room int
		full               bool
	}{
		{2 * readBatch, 1, 1, false},
		{20, 3, maxLinked, false},
		{20, 3, 20, false},
		{20, 3, 7, true},
		{20, 3, 1, true},
	} {
		dir := tree(c.files, c.names)
		root, err := os.Open(dir)
		must(t, err)
		m := &meter{ctx: t.Context(), linked: map[uint64]uint64{}, room: c.room}
		must(t, m.measure(root))
		if len(m.linked) != 0 || (m.room == 0) != c.full {
			t.Errorf("of %d files with %d names, and room for %d, %d are remembered; there is no more room: %t", c.files, c.names, c.room, len(m.linked), m.room == 0)
		}
		got := m.sum()
		if want := int64(c.files + c.names + 1); got.Inodes != want {
			t.Errorf("of %d files with %d names, and room for %d, there are %d inodes, want %d", c.files, c.names, c.room, got.Inodes, want)
		}
		whole, err := Measure(t.Context(), dir)
		must(t, err)
		if lost := whole.Bytes - got.Bytes; lost < 0 || lost > int64(c.files*c.names) { // shares are whole bytes
			t.Errorf("of %d files with %d names, and room for %d, there are %d bytes, want %d", c.files, c.names, c.room, got.Bytes, whole.Bytes)
		}
	}
}

// What is moved or removed while it is measured hides nothing but itself.
func TestMeasureGoesOnAfterMoves(t *testing.T) {
	for name, test := range map[string]struct {
		move func(t *testing.T, dir string)
		lost bool
	}{
		"beside": {func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "a/b/many"), filepath.Join(dir, "a/moved")))
		}, false},
		"removed": {func(t *testing.T, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, "a/b/many")))
		}, false},
		"with what it is in": {func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "a/b/many"), filepath.Join(dir, "moved")))
			must(t, os.Rename(filepath.Join(dir, "a/b"), filepath.Join(dir, "away")))
		}, true},
		"a link in its place": {func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "a/b/many"), filepath.Join(dir, "moved")))
			must(t, os.Rename(filepath.Join(dir, "a/b"), filepath.Join(dir, "away")))
			must(t, os.Symlink("/", filepath.Join(dir, "a/b")))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.MkdirAll(filepath.Join(dir, "a/b/many"), 0o700))
			for i := range readBatch {
				must(t, os.WriteFile(filepath.Join(dir, "a/b/many", strconv.Itoa(i)), nil, 0o600))
			}
			const others = 10
			for i := range others {
				for _, of := range []string{"", "a"} {
					below := filepath.Join(dir, of, strconv.Itoa(i))
					must(t, os.Mkdir(below, 0o700))
					must(t, os.WriteFile(filepath.Join(below, "file"), nil, 0o600))
				}
			}
			moved := false
			used, err := Measure(WithSoFar(t.Context(), func(Used) {
				if !moved {
					moved = true
					test.move(t, dir)
				}
			}), dir)
			if want := int64(4 + readBatch + 4*others); !moved || used.Inodes != want {
				t.Errorf("there are %d inodes, want %d", used.Inodes, want)
			}
			if got := errors.Is(err, errMoved); got != test.lost || err != nil && !got {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// A directory that may not be read hides nothing but what is in it.
func TestMeasureGoesOnAfterWhatMayNotBeRead(t *testing.T) {
	dir := t.TempDir()
	const others = 10
	for i := range others {
		must(t, os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i), "file"), nil, 0o600))
		must(t, os.Mkdir(filepath.Join(dir, "closed"+strconv.Itoa(i)), 0))
	}
	unprivileged(t, func() {
		used, err := Measure(t.Context(), dir)
		if want := int64(1 + 3*others); used.Inodes != want || !errors.Is(err, os.ErrPermission) {
			t.Errorf("there are %d inodes, want %d: %v", used.Inodes, want, err)
		}
	})
}

// unprivileged runs f on a thread that may not read what it has no permission for.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all, less [2]unix.CapUserData
	must(t, unix.Capget(&header, &all[0]))
	less = all
	less[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	must(t, unix.Capset(&header, &less[0]))
	defer func() { must(t, unix.Capset(&header, &all[0])) }()
	f()
}
