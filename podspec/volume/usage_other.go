//go:build !linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Usage returns how many bytes the files in a directory have. Links are not followed.
// A directory that does not exist has none.
func Usage(ctx context.Context, dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	return bytes, nil
}
