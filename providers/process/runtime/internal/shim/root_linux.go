package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// furnish puts a private root together in the new mount namespace and makes it
// the root.
//
// The root is a small file system in memory that has every directory of the
// machine's root mounted into it. So nothing that is made for the container's
// mounts (a directory for its mount path, say) is made on the machine.
func (n *Namespaces) furnish() error {
	if err := enterIPC(n.IPC); err != nil {
		return err
	}
	if n.Hostname != "" {
		if err := unix.Sethostname([]byte(n.Hostname)); err != nil {
			return fmt.Errorf("host name %s: %w", n.Hostname, err)
		}
	}
	if n.Group != nil {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("namespace of control groups: %w", err)
		}
	}
	// What we mount does not show on the machine; what it mounts shows here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("private root: %w", err)
	}
	r, err := newRoot(n.Root)
	if err != nil {
		return fmt.Errorf("private root: %w", err)
	}
	defer r.close()
	if err := r.copyMachine(n); err != nil {
		return fmt.Errorf("private root: %w", err)
	}
	mounts := slices.Clone(n.Mounts)
	// Outer mounts first: a mount hides what was below its target.
	slices.SortStableFunc(mounts, func(a, b Mount) int {
		return strings.Count(filepath.Clean(a.Target), "/") - strings.Count(filepath.Clean(b.Target), "/")
	})
	for _, m := range mounts {
		if err := r.mount(m); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Source, m.Target, err)
		}
	}
	if n.ReadonlyRoot {
		if err := r.makeReadonly(); err != nil {
			return fmt.Errorf("read-only root: %w", err)
		}
	}
	if err := r.protect(n.MaskedPaths, n.ReadonlyPaths); err != nil {
		return err
	}
	return r.enter()
}

// root is a private root that is being put together.
type root struct {
	// dir is the file system in memory that becomes the root.
	dir *os.File
	// own are the mounts in memory where anything may be made, volumes those of
	// the container's volumes and other directories of its own, by their numbers.
	own, volumes map[uint64]bool
	// writable are the mounts that stay writable with a read-only root.
	writable []*os.File
}

// newRoot mounts the file system of a root on a directory of the container's own.
func newRoot(path string) (*root, error) {
	r := &root{own: map[uint64]bool{}, volumes: map[uint64]bool{}}
	at, err := openSource(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = at.Close() }()
	if r.dir, err = newFileSystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755", "size", "16m"); err != nil {
		return nil, err
	}
	// Else the directory that it is on would show up again inside.
	if err := change(r.dir, false, unix.MountAttr{Propagation: unix.MS_UNBINDABLE}); err != nil {
		return nil, err
	}
	if err := attach(r.dir, at); err != nil {
		return nil, err
	}
	return r, r.remember(r.own, r.dir)
}

func (r *root) close() {
	closeAll(r.dir)
	closeAll(r.writable...)
}

// remember adds the number of a tree's mount to a set.
func (r *root) remember(set map[uint64]bool, tree *os.File) error {
	id, err := mountID(tree)
	if err == nil {
		set[id] = true
	}
	return err
}

// memory attaches a file system in memory, in which anything may be made.
func (r *root) memory(at *os.File, options ...string) (*os.File, error) {
	tree, err := newFileSystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, options...)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(attach(tree, at), r.remember(r.own, tree)); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return tree, nil
}

// copyMachine mounts what is in the machine's root, with a /dev and /tmp of its
// own, and a /proc that shows only the container's processes if it has a PID
// namespace.
func (r *root) copyMachine(n *Namespaces) error {
	skip := []string{"dev", "tmp"}
	if n.PID || n.JoinPID != nil {
		skip = append(skip, "proc")
	}
	machine, err := openSource("/")
	if err != nil {
		return err
	}
	defer func() { _ = machine.Close() }()
	if err := bindAll(machine, r.dir, skip); err != nil {
		return err
	}
	if err := r.bindTmp(n.Tmp); err != nil {
		return err
	}
	if err := r.replaceShared(n.VarTmp); err != nil {
		return err
	}
	if len(skip) == 3 {
		if err := r.mountProc(); err != nil {
			return err
		}
	}
	if err := r.makeDev(n.SharedMemory); err != nil {
		return err
	}
	if n.Group != nil {
		if err := r.showGroup(n.Group); err != nil {
			return fmt.Errorf("control groups: %w", err)
		}
	}
	if err := detachBelow(n.Root, n.Hidden); err != nil {
		return err
	}
	for _, path := range n.Hidden {
		if err := r.at(path, r.mask); err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	return nil
}

func (r *root) bindTmp(tmp string) error {
	source, err := openSource(tmp)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	at, err := makeDirectory(r.dir, "tmp", 0o755)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	return r.bindOwn(source, at)
}

// bindOwn mounts a directory of the container's own, in which directories for volumes may be
// made as in a volume.
func (r *root) bindOwn(source, at *os.File) error {
	tree, err := cloneTree(source)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	return errors.Join(attach(tree, at), r.remember(r.volumes, tree))
}

// lockDir is where programs of the machine lock devices; all users may write there.
const lockDir = "/run/lock"

// replaceShared puts the container's own directories in the place of those that all
// users of the machine may write to, where the machine has them.
func (r *root) replaceShared(varTmp string) error {
	source, err := openSource(varTmp)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if err := r.at("/var/tmp", func(at *os.File) error { return r.bindOwn(source, at) }); err != nil {
		return fmt.Errorf("/var/tmp: %w", err)
	}
	err = r.at(lockDir, func(at *os.File) error {
		locks, err := newFileSystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "1777", "size", "5m")
		if err != nil {
			return err
		}
		defer func() { _ = locks.Close() }()
		return errors.Join(attach(locks, at), r.remember(r.own, locks))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", lockDir, err)
	}
	return nil
}

func (r *root) mountProc() error {
	at, err := makeDirectory(r.dir, "proc", 0o555)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	tree, err := newFileSystem("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	r.writable = append(r.writable, tree)
	return attach(tree, at)
}

// bindAll mounts each entry of a directory into another. What is mounted on the
// first itself does not count.
func bindAll(from, to *os.File, skip []string) error {
	names, err := namesOf(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(skip, name) {
			continue
		}
		if err := bindEntry(from, to, name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// namesOf reads the names in a directory that was opened as a place.
func namesOf(dir *os.File) ([]string, error) {
	fd, err := unix.Openat(fdOf(dir), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir.Name(), Err: err}
	}
	f := os.NewFile(uintptr(fd), dir.Name())
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

// bindEntry mounts one file or directory, or copies a link.
func bindEntry(from, to *os.File, name string) error {
	source, err := openEntry(from, name)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	s, err := stat(source)
	if err != nil {
		return err
	}
	var at *os.File
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		size, err := unix.Readlinkat(fdOf(source), "", target)
		if err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
		return unix.Symlinkat(string(target[:size]), fdOf(to), name)
	case unix.S_IFDIR:
		at, err = makeDirectory(to, name, 0o755)
	default:
		at, err = makeFile(to, name)
	}
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	// What cannot be mounted (it is unbindable, or is gone) is left out.
	if err := bind(source, at); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// bind mounts an open file or directory on another.
func bind(source, at *os.File) error {
	tree, err := cloneTree(source)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	return attach(tree, at)
}

// makeDirectory makes a directory, which is not there, and opens it.
func makeDirectory(parent *os.File, name string, mode uint32) (*os.File, error) {
	if err := unix.Mkdirat(fdOf(parent), name, mode); err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return openEntry(parent, name)
}

// makeFile makes an empty file, which is not there, and opens it.
func makeFile(parent *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(fdOf(parent), name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: name, Err: err}
	}
	_ = unix.Close(fd)
	return openEntry(parent, name)
}

// makeReadonly makes all read-only but what stays writable.
func (r *root) makeReadonly() error {
	if err := change(r.dir, true, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	for _, tree := range r.writable {
		if err := change(tree, false, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return err
		}
	}
	return nil
}

// enter makes it the root, and lets go of the machine's.
func (r *root) enter() error {
	if err := unix.Fchdir(fdOf(r.dir)); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter the private root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's root: %w", err)
	}
	return os.Chdir("/")
}
