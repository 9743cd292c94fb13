//go:build !linux

package api

import "net"

// hungUp is not implemented on this platform.
func hungUp(net.Conn) bool { return false }
