package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// What an fsGroup adds to the permissions of what is in a volume. That of
// directories has new files belong to the group, too.
const (
	groupReads   fs.FileMode = 0o440
	groupWrites  fs.FileMode = 0o660
	groupEnters  fs.FileMode = 0o110
	groupInherit             = fs.ModeSetgid
)

// settable are the bits of a mode that can be set.
const settable = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// longestPath is how long a path in a volume may be that is given to a group, as for a kubelet: in one
// that a pod has made far deeper, each level takes longer than the one above.
const longestPath = 4096

// SetGroup gives what is in dir, and dir itself, to a group, as an fsGroup
// demands: the group may read and write files, and what is made in directories
// is the group's, too. Symbolic links are not followed. It ends with ctx.
//
// With the policy OnRootMismatch nothing is done if dir itself is as it should
// be; without, all is checked, and changed where it differs.
func SetGroup(ctx context.Context, dir string, group int64, policy *corev1.PodFSGroupChangePolicy) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("apply fsGroup %d: %w", group, err)
	}
	defer root.Close()
	if policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch {
		if info, err := root.Stat("."); err == nil && hasGroup(info, int(group)) {
			return nil
		}
	}
	if err := setGroups(ctx, root, ".", int(group)); err != nil {
		return fmt.Errorf("apply fsGroup %d to %s: %w", group, dir, err)
	}
	return nil
}

// setGroups gives all at and below name to a group. What is below comes first: a
// volume whose root is right has been done to the end.
func setGroups(ctx context.Context, root *os.Root, name string, group int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(name) > longestPath {
		return fmt.Errorf("a path in it is longer than %d bytes", longestPath)
	}
	info, err := root.Lstat(name)
	if err == nil && info.IsDir() {
		err = eachEntry(root, name, func(entry string) error { return setGroups(ctx, root, entry, group) })
	}
	if err == nil && !hasGroup(info, group) {
		err = setGroup(root, name, info, group)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // containers that share the volume go on working in it
	}
	return err
}

func setGroup(root *os.Root, name string, info fs.FileInfo, group int) error {
	if err := root.Lchown(name, nobodyElse, group); err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	return root.Chmod(name, grouped(info.Mode(), groupWrites)) // after chown, which clears bits
}

// eachEntry calls f for the path of each entry of a directory. Unlike those of
// package fs, names may be any bytes: containers choose them.
func eachEntry(root *os.Root, dir string, f func(path string) error) error {
	sub, err := root.OpenRoot(dir) // which opens nothing but directories
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(sub.FS(), ".")
	if err = errors.Join(err, sub.Close()); err != nil {
		return err
	}
	for _, entry := range entries {
		if err := f(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// grouped returns the mode with what an fsGroup adds.
func grouped(mode, access fs.FileMode) fs.FileMode {
	if mode.IsDir() {
		access |= groupEnters | groupInherit
	}
	return (mode | access) & settable
}

// hasGroup reports whether a file is the group's already.
func hasGroup(info fs.FileInfo, group int) bool {
	_, gid, known := ownerOf(info)
	if known && gid != group {
		return false
	}
	return info.Mode()&fs.ModeSymlink != 0 || info.Mode()&settable == grouped(info.Mode(), groupWrites)
}
