package shim

import "golang.org/x/sys/unix"

// nativeArch is the architecture, and foreignNumbers where the numbers of the x32
// ABI begin.
const (
	nativeArch     = unix.AUDIT_ARCH_X86_64
	foreignNumbers = 0x40000000
)

// deniedHere are those of deniedCalls that other architectures do not have.
var deniedHere = []uint32{unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS}
