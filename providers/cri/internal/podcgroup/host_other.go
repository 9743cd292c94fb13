//go:build !linux

package podcgroup

// host has no control groups.
type host struct{}

func (host) set(Driver, name, limits) error { return nil }

func (host) remove(Driver, name) error { return nil }

func (host) removeEmpty(Driver, name) {}

// EndsAsAWhole reports whether a container that is out of memory can end as a whole on this machine.
func EndsAsAWhole() bool { return false }

// LimitsSwap reports whether the control groups of this machine can keep containers out of swap.
func LimitsSwap() bool { return false }
