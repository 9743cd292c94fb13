package volume

import (
	"errors"
	"fmt"
	"os"
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

// unmount unmounts what is mounted on dir, and reports whether there was
// anything. A mount that is in use goes from here at once, and altogether when
// its last user has.
func unmount(dir string) (was bool, err error) {
	err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
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

// openBeneath opens what is at a path below a directory, without following any
// link, and without reading or writing it.
func openBeneath(dir, rel string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
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
