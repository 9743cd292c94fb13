package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// protect hides and protects what shows the machine or changes it, even from a
// container's root.
func (r *root) protect(masked, readonly []string) error {
	for _, path := range masked {
		if err := r.at(path, r.mask); err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
	}
	for _, path := range readonly {
		if err := r.at(path, keep); err != nil {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	return nil
}

// at calls f with what is at a path of the private root, if it is there.
func (r *root) at(path string, f func(at *os.File) error) error {
	at, err := r.open(filepath.Clean(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	return f(at)
}

// mask makes a file or directory look empty.
func (r *root) mask(at *os.File) error {
	dir, err := isDir(at)
	if err != nil {
		return err
	}
	if !dir {
		null, err := r.open("dev/null")
		if err != nil {
			return err
		}
		defer func() { _ = null.Close() }()
		return bind(null, at)
	}
	tree, err := newFileSystem("tmpfs", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0555", "size", "4k")
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	return attach(tree, at)
}

// keep lets nobody write to a path or below it.
func keep(at *os.File) error {
	tree, err := cloneTree(at)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	if err := change(tree, true, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	return attach(tree, at)
}
