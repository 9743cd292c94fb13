package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockDir makes this process the only supervisor of the directory until it
// ends. The kernel drops the lock with the process, so there are no stale ones.
func lockDir(l layout) (*os.File, error) {
	f, err := os.OpenFile(l.lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid, _ := readPID(f)
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("a control plane runs in %s already (process %d): stop it with \"controlplane down --dir %s\" or choose another --dir", l.dir, pid, l.dir)
		}
		return nil, fmt.Errorf("lock %s: %w", l.lock(), err)
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the process id: %w", err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the process id: %w", err)
	}
	return f, nil
}

func readPID(f *os.File) (int, error) {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0, fmt.Errorf("read the process id: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("read the process id from %s: %w", f.Name(), err)
	}
	return pid, nil
}

// down stops the supervisor that holds the directory's lock and waits until it
// is gone. The lock proves that the process id is the supervisor's.
func down(ctx context.Context, l layout, timeout time.Duration) error {
	f, err := os.Open(l.lock())
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no control plane was started in %s: check --dir", l.dir)
	}
	if err != nil {
		return fmt.Errorf("open the lock file: %w", err)
	}
	defer f.Close()

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	asked := false
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err == nil {
			return nil // nobody holds it (any more)
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("check the lock of %s: %w", l.dir, err)
		}
		if !asked {
			pid, err := readPID(f)
			if err != nil {
				return err
			}
			if err := unix.Kill(pid, unix.SIGTERM); err != nil {
				return fmt.Errorf("stop process %d: %w", pid, err)
			}
			asked = true
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the control plane in %s did not stop within %v: %w", l.dir, timeout, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
