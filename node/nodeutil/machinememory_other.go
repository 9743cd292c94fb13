//go:build !linux

package nodeutil

// machineMemory is the memory of this machine in bytes, 0 if it is unknown.
func machineMemory() int64 { return 0 }
