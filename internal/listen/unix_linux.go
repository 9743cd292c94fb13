package listen

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// listenUnix sets the rights before the file is there: Linux gives it those of the socket, less the
// umask.
func listenUnix(path string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), ownersAlone) })
		return errors.Join(err, failed)
	}}
	return config.Listen(context.Background(), "unix", path)
}
