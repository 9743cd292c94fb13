package shim

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// PinIPC makes an IPC namespace, and mounts it on an empty file: it is there until
// the file is unmounted and no process is in it, also when this process has ended.
func PinIPC(file string) error {
	enter := func() error {
		if err := unix.Unshare(unix.CLONE_NEWIPC); err != nil {
			return fmt.Errorf("make an IPC namespace: %w", err)
		}
		return nil
	}
	return inIPC(enter, func() error {
		if err := unix.Mount("/proc/thread-self/ns/ipc", file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep an IPC namespace: %w", err)
		}
		return nil
	})
}

// LimitShared sets how many bytes of System V shared memory there may be in the IPC
// namespace that is mounted on a file; zero is no limit.
func LimitShared(file string, bytes int64) error {
	pages := ^uint(0) - 1<<24 // the kernel's default
	if size := int64(os.Getpagesize()); bytes > 0 {
		pages = uint((bytes-1)/size + 1)
	}
	return inIPC(func() error { return enterIPC(file) }, func() error {
		if err := setSysctl("kernel/shmall", strconv.FormatUint(uint64(pages), 10)); err != nil {
			return fmt.Errorf("limit the pod's shared memory: %w", err)
		}
		return nil
	})
}

// setSysctl sets one of the namespaces of this thread, also where /proc/sys is read-only,
// as systemd makes it for services.
func setSysctl(name, value string) error {
	proc, err := newFileSystem("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = proc.Close() }()
	fd, err := unix.Openat(fdOf(proc), "sys/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// inIPC does something in another IPC namespace, in a goroutine of its own: a thread that
// cannot leave the namespace ends with it.
func inIPC(enter, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- lockedInIPC(enter, do) }() // waited for below
	return <-done
}

func lockedInIPC(enter, do func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/ipc")
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	if err := enter(); err != nil {
		return err
	}
	err = do()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWIPC); back != nil {
		return errors.Join(err, fmt.Errorf("leave an IPC namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

// enterIPC enters the IPC namespace that is mounted on a file.
func enterIPC(file string) error {
	if file == "" {
		return nil
	}
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		err = unix.Setns(fd, unix.CLONE_NEWIPC)
	}
	if err != nil {
		return fmt.Errorf("enter the pod's IPC namespace: %w", err)
	}
	return nil
}
