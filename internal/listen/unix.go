package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// maxPath is the most bytes that the path of a unix socket has on Linux, which says of a longer one
// that an argument is invalid.
const maxPath = 107

// Unix listens on a unix socket, in place of a process that was killed and has left its file there.
// While another process answers at the path, it is an error. Nobody but the user of this process can
// connect, from the beginning.
func Unix(path string) (net.Listener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path of a unix socket has %d bytes at most, and this has %d: use a shorter one", path, maxPath, len(path))
	}
	if err := makeWay(path); err != nil {
		return nil, err
	}
	return listenUnix(path)
}

// makeWay removes the socket of a process that has ended.
func makeWay(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("listen on a unix socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("listen on %s: there is a file that is no socket: remove it, or use another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("listen on %s: another process answers there: end it, or use another path", path)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("find out whether another process listens: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the socket that an earlier process has left: %w", err)
	}
	return nil
}

// ownersAlone are the rights of the sockets.
const ownersAlone = 0o600
