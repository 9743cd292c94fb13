package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// protect hides and protects what tells of the machine or changes it, even from a
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

// at calls f with where a path of the private root is, if it is there.
func (r *root) at(path string, f func(at string) error) error {
	at, err := r.resolve(filepath.Clean(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f(at)
}

func (r *root) mask(at string) error {
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return bind(filepath.Join(r.path, "dev/null"), at)
	}
	return unix.Mount("tmpfs", at, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,size=4k")
}

// keep lets nobody write below a path.
func keep(at string) error {
	if err := bind(at, at); err != nil {
		return err
	}
	return setAttributes(at, true, unix.MOUNT_ATTR_RDONLY, 0)
}
