//go:build !linux

package filetree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Measure returns how many bytes the files in a directory have, and how many there are.
// Links are not followed. A directory that does not exist has none.
func Measure(ctx context.Context, dir string) (used Used, err error) {
	reporter := reporterOf(ctx)
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			used.Bytes += info.Size()
			used.Inodes++
			reporter.report(used)
		}
		return nil
	})
	if err != nil {
		return Used{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	return used, nil
}
