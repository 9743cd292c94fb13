package shim

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeInherited closes what this process was started with from a number on and was
// not given on purpose. What the program has opened itself closes when it becomes
// another, and stays.
func closeInherited(first int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < first {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// keepStreams has all but the three streams close when this process becomes its
// command.
func keepStreams() {
	if unix.CloseRange(3, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC) != nil {
		closeInherited(3) // before Linux 5.11
	}
}

// ownKeyring leaves the session keyring of the user that has started virtual-kubelet.
func ownKeyring() error {
	const anonymous = 0
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, anonymous, 0)
	// A kernel without keyrings, or one that lets nobody here use them.
	if errno == 0 || errors.Is(errno, unix.ENOSYS) || errors.Is(errno, unix.EPERM) || errors.Is(errno, unix.EACCES) {
		return nil
	}
	return fmt.Errorf("session keyring: %w", errno)
}
