package shim

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// PinIPC makes an IPC namespace, and mounts it on an empty file: it is there until
// the file is unmounted and no process is in it, also when this process has ended.
func PinIPC(file string) error {
	done := make(chan error, 1)
	go func() { done <- pinIPC(file) }() // waited for below
	return <-done
}

// pinIPC runs in a goroutine of its own: a thread that cannot leave the new
// namespace ends with it.
func pinIPC(file string) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/ipc")
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	if err := unix.Unshare(unix.CLONE_NEWIPC); err != nil {
		return fmt.Errorf("make an IPC namespace: %w", err)
	}
	err = unix.Mount("/proc/thread-self/ns/ipc", file, "", unix.MS_BIND, "")
	if err != nil {
		err = fmt.Errorf("keep an IPC namespace: %w", err)
	}
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
