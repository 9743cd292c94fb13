// Package dirlock lets one process at a time use a directory.
package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Take takes the lock of a provider's directory: a file, which stays. It lasts until the file that
// is returned is closed, or the process ends. If another has it, the error says what to do.
func Take(root string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = try(f)
	// Of a program that was killed, a process that was just being started may hold it for a moment.
	for range 20 {
		if err == nil {
			return f, nil
		}
		time.Sleep(50 * time.Millisecond)
		err = try(f)
	}
	_ = f.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("cannot lock %s: %w", root, err)
	}
	return nil, fmt.Errorf("%s is in use by another virtual-kubelet: end that one, or give each node a root of its own (%w)", root, err)
}

func try(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
