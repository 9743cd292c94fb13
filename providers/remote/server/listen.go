package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// Listen listens on a unix socket, in place of a process that was killed and has left its file
// there. While another process answers at the path, it is an error. The rights of the file are
// those of any that the process makes (umask): who can connect can read Secrets, and run pods.
func Listen(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return net.Listen("unix", path)
	case err != nil:
		return nil, fmt.Errorf("listen on a unix socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("listen on %s: there is a file that is no socket: remove it, or use another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return nil, fmt.Errorf("listen on %s: another process answers there: end it, or use another path", path)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("find out whether another process listens: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("remove the socket that an earlier process has left: %w", err)
	}
	return net.Listen("unix", path)
}
