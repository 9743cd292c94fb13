package shim

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// makeDev makes the devices that every program may use.
func (r *root) makeDev() error {
	at, err := makeDirectory(r.dir, "dev", 0o755)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	dev, err := r.memory(at, "mode", "0755", "size", "64k")
	if err != nil {
		return err
	}
	r.writable = append(r.writable, dev)
	machine, err := openAt(unix.AT_FDCWD, "/dev", 0)
	if err != nil {
		return err
	}
	defer func() { _ = machine.Close() }()
	// Terminals are the machine's: the shim opens them outside.
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"} {
		if err := bindEntry(machine, dev, name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := unix.Symlinkat(target, fdOf(dev), name); err != nil {
			return &os.PathError{Op: "symlink", Path: "/dev/" + name, Err: err}
		}
	}
	shmAt, err := makeDirectory(dev, "shm", 0o755)
	if err != nil {
		return err
	}
	defer func() { _ = shmAt.Close() }()
	shm, err := r.memory(shmAt, "mode", "1777", "size", "64m")
	if err != nil {
		return err
	}
	r.writable = append(r.writable, shm)
	return nil
}
