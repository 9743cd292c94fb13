//go:build !linux

package filetree

import (
	"errors"
	"io/fs"
	"os"
)

// Remove removes what name is in a directory, with all that is below it. It follows
// no link.
func Remove(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(root.RemoveAll(name), root.Close())
}
