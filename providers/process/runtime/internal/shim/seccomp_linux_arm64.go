package shim

import "golang.org/x/sys/unix"

// nativeArch is the architecture, which has no numbers of others.
const (
	nativeArch     = unix.AUDIT_ARCH_AARCH64
	foreignNumbers = 1<<32 - 1
)

var deniedHere []uint32
