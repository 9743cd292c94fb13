package shim

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in the kernel's struct seccomp_data; arguments are 64 bits, of which the
// lower half comes first on the architectures that nativeArch knows.
const (
	seccompNumber   = 0
	seccompArch     = 4
	seccompArgument = 16
)

// newNamespaces are the flags of clone and unshare that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// deniedCalls are what programs of a container have no business with: they change
// the machine, or reach far into the kernel.
func deniedCalls() []uint32 {
	return append([]uint32{
		unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME,
		unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
		unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_IO_URING_SETUP, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL,
		unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT, unix.SYS_QUOTACTL,
		unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY,
		unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
	}, deniedHere...)
}

// filterProgram is the default profile as a program for the kernel. It denies with
// EPERM, and says ENOSYS of clone3, whose flags it cannot see, so that programs use
// clone.
func filterProgram() []unix.SockFilter {
	const eperm, enosys = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(code uint16, value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | code | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	// Programs of another architecture have other numbers.
	program := []unix.SockFilter{
		load(seccompArch), jump(unix.BPF_JEQ, nativeArch, 1, 0), answer(eperm),
		load(seccompNumber), jump(unix.BPF_JGE, foreignNumbers, 0, 1), answer(enosys),
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), answer(enosys),
	}
	for _, call := range deniedCalls() {
		program = append(program, jump(unix.BPF_JEQ, call, 0, 1), answer(eperm))
	}
	// inArgument denies a call if a test of one of its arguments is true.
	inArgument := func(call, argument uint32, code uint16, values ...uint32) {
		test := []unix.SockFilter{load(seccompArgument + 8*argument)}
		for _, value := range values {
			test = append(test, jump(code, value, 0, 1), answer(eperm))
		}
		test = append(test, answer(unix.SECCOMP_RET_ALLOW))
		program = append(append(program, jump(unix.BPF_JEQ, call, 0, uint8(len(test)))), test...)
	}
	inArgument(unix.SYS_CLONE, 0, unix.BPF_JSET, newNamespaces)
	inArgument(unix.SYS_UNSHARE, 0, unix.BPF_JSET, newNamespaces)
	inArgument(unix.SYS_SOCKET, 0, unix.BPF_JEQ, unix.AF_VSOCK)
	// What is pushed into a terminal is as if its owner had typed it.
	inArgument(unix.SYS_IOCTL, 1, unix.BPF_JEQ, unix.TIOCSTI, unix.TIOCLINUX)
	return append(program, answer(unix.SECCOMP_RET_ALLOW))
}

// filterCalls applies the default profile to the calling thread, where the kernel
// can do that.
func filterCalls() error {
	if nativeArch == 0 {
		return nil
	}
	program := filterProgram()
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 && !errors.Is(errno, unix.ENOSYS) && !errors.Is(errno, unix.EINVAL) {
		return fmt.Errorf("seccomp profile: %w", errno)
	}
	return nil
}
