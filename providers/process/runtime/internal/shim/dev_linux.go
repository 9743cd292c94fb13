package shim

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// makeDev makes the devices that every program may use, with the container's own
// terminals and the pod's shared memory.
func (r *root) makeDev(sharedMemory string) error {
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
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bindEntry(machine, dev, name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		if err := unix.Symlinkat(target, fdOf(dev), name); err != nil {
			return &os.PathError{Op: "symlink", Path: "/dev/" + name, Err: err}
		}
	}
	if err := r.attachIn(dev, "pts", os.NewFile(terminalsFD, "terminals")); err != nil {
		return err
	}
	source, err := openSource(sharedMemory)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	memory, err := cloneTree(source)
	if err != nil {
		return err
	}
	return r.attachIn(dev, "shm", memory)
}

// attachIn attaches a tree at a new directory. It stays writable with a read-only
// root.
func (r *root) attachIn(parent *os.File, name string, tree *os.File) error {
	r.writable = append(r.writable, tree)
	at, err := makeDirectory(parent, name, 0o755)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	return attach(tree, at)
}
