package api

import (
	"encoding/binary"
	"net"
	"syscall"
)

// tcpEstablished is the kernel's TCP_ESTABLISHED.
const tcpEstablished = 1

// hungUp reports whether the other end has closed conn, also where that is behind
// input that nobody has read.
func hungUp(conn net.Conn) bool {
	for {
		over, ok := conn.(interface{ NetConn() net.Conn }) // such as TLS
		if !ok {
			break
		}
		conn = over.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	_ = raw.Control(func(fd uintptr) {
		info, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		var first [4]byte // of struct tcp_info, whose first byte is the state
		binary.NativeEndian.PutUint32(first[:], uint32(info))
		gone = err == nil && first[0] != tcpEstablished
	})
	return gone
}
