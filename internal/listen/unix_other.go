//go:build !linux

package listen

import (
	"errors"
	"net"
	"os"
)

func listenUnix(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, ownersAlone); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
