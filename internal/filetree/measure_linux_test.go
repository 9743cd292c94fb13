package filetree

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// A tree of very many names is read as far as they are counted, be they directories.
func TestMeasureAtMost(t *testing.T) {
	dir := t.TempDir()
	const names = 3 * readBatch
	for i := range names {
		must(t, os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(dir, "0", "file"), []byte("x"), 0o600))
	for most, want := range map[int64]int64{1: 1 + readBatch, readBatch + 2: 1 + 2*readBatch, math.MaxInt64: names + 2} {
		if used, err := Measure(t.Context(), dir, most); err != nil || used.Inodes != want {
			t.Errorf("of at most %d there are %d inodes, want %d: %v", most, used.Inodes, want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if used, err := Measure(ctx, dir, math.MaxInt64); !errors.Is(err, context.Canceled) || used.Inodes != 1 {
		t.Errorf("after the end of its context there are %d inodes: %v", used.Inodes, err)
	}
}
