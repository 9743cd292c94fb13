//go:build !linux

package podcgroup

// host has no control groups.
type host struct{}

func (host) set(Driver, name, limits) error { return nil }

func (host) remove(Driver, name) error { return nil }

func (host) removeEmpty(Driver, name) {}

// Unified reports whether the control groups of this machine are those of version 2.
func Unified() bool { return false }
