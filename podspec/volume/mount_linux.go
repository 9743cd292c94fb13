package volume

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountTmpfs mounts a tmpfs on dir. What is in it stays out of swap space where
// the kernel can do that (6.4 and later).
func mountTmpfs(dir string, options []string) error {
	mount := func(options []string) error {
		return unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(options, ","))
	}
	err := mount(append([]string{"noswap"}, options...))
	if errors.Is(err, unix.EINVAL) {
		err = mount(options)
	}
	if err != nil {
		return &os.PathError{Op: "mount tmpfs on", Path: dir, Err: err}
	}
	return nil
}

// bindMount mounts an open file or directory on target.
func bindMount(file *os.File, target string) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind mount on", Path: target, Err: err}
	}
	return nil
}

// makeSlave keeps what is unmounted below dir from being unmounted where it came from, if something
// is mounted on dir.
func makeSlave(dir string) error {
	file, err := openWithoutLinks(dir)
	if err == nil {
		err = errors.Join(unix.Mount("", placeName(file), "", unix.MS_REC|unix.MS_SLAVE, ""), file.Close())
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "change mount of", Path: dir, Err: err}
	}
	return nil
}

// unmount unmounts what is mounted on dir, and reports whether there was
// anything. A mount that is in use goes from here at once, and altogether when
// its last user has. No link is followed: pods may change what the host's mounts are below.
func unmount(dir string) (was bool, err error) {
	parent, err := openWithoutLinks(filepath.Dir(dir))
	if err == nil {
		point := placeName(parent) + "/" + filepath.Base(dir)
		err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		err = errors.Join(err, parent.Close())
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, &os.PathError{Op: "unmount", Path: dir, Err: err}
}

// mountPoints returns the mount points below dir in the order of mounting.
func mountPoints(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return mountsBelow(string(data), dir), nil
}

// bindTree mounts an open file or directory on target, with what is mounted below it
// if recursive is set. What the host mounts there later shows; what is unmounted here
// stays on the host.
func bindTree(file *os.File, target string, recursive bool) error {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(int(file.Fd()), "", flags)
	if err != nil {
		return &os.PathError{Op: "clone mount of", Path: file.Name(), Err: err}
	}
	defer func() { _ = unix.Close(tree) }()
	slave := &unix.MountAttr{Propagation: unix.MS_SLAVE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, slave); err != nil {
		return &os.PathError{Op: "change mount of", Path: file.Name(), Err: err}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "mount on", Path: target, Err: err}
	}
	return nil
}

// openWithoutLinks opens what is at a path that has no links, without reading or
// writing it. If there is a link by now, that is an error: it may lead anywhere.
func openWithoutLinks(path string) (*os.File, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ELOOP):
			return nil, fmt.Errorf("%s became a link while it was looked at", path)
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// placeName is a path of an open file or directory that nobody can lead elsewhere.
func placeName(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

// createDirectory makes a directory, and those above it, at a path that has no
// links, unless something is there. The umask does not count for it.
func createDirectory(path string) error {
	if file, err := openWithoutLinks(path); !errors.Is(err, os.ErrNotExist) {
		if err == nil {
			_ = file.Close()
		}
		return err
	}
	return inParent(path, func(parent int, name string) error {
		if err := unix.Mkdirat(parent, name, uint32(createdDirectoryMode)); err != nil {
			if errors.Is(err, unix.EEXIST) {
				return nil // somebody was faster
			}
			return &os.PathError{Op: "mkdir", Path: path, Err: err}
		}
		fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		defer func() { _ = unix.Close(fd) }()
		return unix.Fchmod(fd, uint32(createdDirectoryMode))
	}, createDirectory)
}

// createFile makes an empty file at a path that has no links, unless something is
// there. Its directory has to exist.
func createFile(path string) error {
	return inParent(path, func(parent int, name string) error {
		fd, err := unix.Openat(parent, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(createdFileMode))
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		if err != nil {
			return &os.PathError{Op: "create", Path: path, Err: err}
		}
		return errors.Join(unix.Fchmod(fd, uint32(createdFileMode)), unix.Close(fd))
	}, nil)
}

// inParent calls f with the open directory that a path is in. If that is not there,
// it is made by make.
func inParent(path string, f func(parent int, name string) error, make func(path string) error) error {
	dir := filepath.Dir(path)
	parent, err := openWithoutLinks(dir)
	if errors.Is(err, os.ErrNotExist) && make != nil && dir != path {
		if err := make(dir); err != nil {
			return err
		}
		parent, err = openWithoutLinks(dir)
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	return f(int(parent.Fd()), filepath.Base(path))
}

// openBeneath opens what is at a path below a directory, without following any
// link, and without reading or writing it.
func openBeneath(dir, rel string) (*os.File, error) {
	base, err := openWithoutLinks(dir)
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(base.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, base.Close()); err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	for element := range strings.SplitSeq(rel, "/") {
		next, err := unix.Openat(fd, element, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: dir + "/" + rel, Err: err}
		}
		fd = next
	}
	file := os.NewFile(uintptr(fd), dir+"/"+rel)
	info, err := file.Stat()
	if err == nil && info.Mode()&os.ModeSymlink != 0 {
		err = fmt.Errorf("%s became a link while it was looked at", file.Name())
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// openRegular opens a regular file below a directory to read it. Links may lead to it that stay below the
// directory. What is no regular file is not opened: that alone does something to some devices.
func openRegular(dir, path string) (*os.File, error) {
	base, err := openWithoutLinks(dir)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	fd, err := unix.Openat2(int(base.Fd()), path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH})
	if errors.Is(err, unix.EXDEV) {
		err = errEscapes
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s is no regular file", path))
	}
	return os.OpenFile(placeName(file), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}
