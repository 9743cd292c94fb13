package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// reservation is a TCP port that is bound, but not listened on, by the
// supervisor. A component of the same user that binds with SO_REUSEPORT
// (--permit-port-sharing) can listen on it; nobody else can take it, neither
// before the component starts nor while it is restarted.
type reservation struct {
	port int
	fd   int
}

func (r *reservation) release() {
	_ = unix.Close(r.fd)
}

// reservePort reserves a port of the address; 0 stands for any free one.
func reservePort(ip net.IP, port int) (*reservation, error) {
	family, addr := sockaddr(ip, port)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	bound, err := bindExclusively(fd, addr)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve port %d of %s: %w", port, ip, err)
	}
	return &reservation{port: bound, fd: fd}, nil
}

// bindExclusively binds without SO_REUSEPORT, so that it fails when another
// control plane has the port, and allows sharing only afterwards.
// SO_REUSEADDR is set during the bind alone: it forgives connections that are
// in TIME_WAIT, but would also let a second supervisor in.
func bindExclusively(fd int, addr unix.Sockaddr) (int, error) {
	steps := []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) },
		func() error { return unix.Bind(fd, addr) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return 0, err
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return a.Port, nil
	case *unix.SockaddrInet6:
		return a.Port, nil
	default:
		return 0, fmt.Errorf("unexpected socket address %T", name)
	}
}

func sockaddr(ip net.IP, port int) (int, unix.Sockaddr) {
	if v4 := ip.To4(); v4 != nil {
		return unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte(v4)}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte(ip.To16())}
}

// reserveAPIServerPort reserves the port that was asked for, else the one that
// this directory had before, else a free one, and remembers it.
func reserveAPIServerPort(l layout, ip net.IP, wanted int) (*reservation, error) {
	data, err := os.ReadFile(l.port())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the API server's port: %w", err)
	}
	if err == nil && wanted == 0 {
		if wanted, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
			return nil, fmt.Errorf("read the API server's port from %s (remove the file to get a new one): %w", l.port(), err)
		}
	}
	r, err := reservePort(ip, wanted)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: stop what listens there, or choose another --port (clients then need the new kubeconfig)", err)
	}
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.port(), []byte(strconv.Itoa(r.port)+"\n"), 0o600); err != nil {
		r.release()
		return nil, fmt.Errorf("remember the API server's port: %w", err)
	}
	return r, nil
}
