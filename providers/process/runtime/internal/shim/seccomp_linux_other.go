//go:build linux && !amd64 && !arm64

package shim

// There is no profile for this architecture.
const (
	nativeArch     = 0
	foreignNumbers = 1<<32 - 1
)

var deniedHere []uint32
