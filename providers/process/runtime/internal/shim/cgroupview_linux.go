package shim

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where programs look for control groups.
const cgroupRoot = "/sys/fs/cgroup"

// unifiedName is the name of the v2 hierarchy, as package cgroup has it.
const unifiedName = "unified"

// showGroup makes /sys only readable, and shows in its tree of control groups
// nothing but the container's own: programs read their limits there.
func (r *root) showGroup(group map[string]string) error {
	if err := r.at("/sys", keep); err != nil {
		return err
	}
	at, err := r.open(cgroupRoot)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	if own, ok := group[unifiedName]; ok && len(group) == 1 {
		tree, err := groupTree(own)
		if err != nil {
			return r.mask(at)
		}
		defer func() { _ = tree.Close() }()
		return attach(tree, at)
	}
	dir, err := newFileSystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "64k")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := attach(dir, at); err != nil {
		return err
	}
	for _, hierarchy := range slices.Sorted(maps.Keys(group)) {
		if err := showHierarchy(dir, strings.TrimPrefix(hierarchy, "name="), group[hierarchy]); err != nil {
			return err
		}
	}
	return change(dir, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

func showHierarchy(dir *os.File, name, group string) error {
	tree, err := groupTree(group)
	if err != nil {
		return nil // the group could not be made
	}
	defer func() { _ = tree.Close() }()
	at, err := makeDirectory(dir, name, 0o555)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	return attach(tree, at)
}

// groupTree is a control group for reading.
func groupTree(group string) (*os.File, error) {
	source, err := openSource(group)
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }()
	tree, err := cloneTree(source)
	if err != nil {
		return nil, err
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := change(tree, true, attributes); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return tree, nil
}
