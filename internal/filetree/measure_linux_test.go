package filetree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
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
