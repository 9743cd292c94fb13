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
// The root is a small file system in memory that has every folder of the
// machine's root mounted into it. So nothing that is made for the container's
// mounts (a folder for its mount path, say) is made on the machine.
func (n *Namespaces) furnish() error {
	if n.Hostname != "" {
		if err := unix.Sethostname([]byte(n.Hostname)); err != nil {
			return fmt.Errorf("host name %s: %w", n.Hostname, err)
		}
	}
	// What we mount does not show on the machine; what it mounts shows here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("private root: %w", err)
	}
	r := &root{path: n.Root}
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
	// path is where it is until it is the root.
	path string
	// own are the file systems in memory where anything may be made.
	own []uint64
	// writable are the mounts that stay writable with a read-only root; volumes
	// are the container's.
	writable, volumes []string
}

// tmpfs mounts a file system in memory.
func (r *root) tmpfs(at string, options string) error {
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("tmpfs at %s: %w", at, err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(at, &stat); err != nil {
		return err
	}
	r.own = append(r.own, stat.Dev)
	return nil
}

// copyMachine mounts what is in the machine's root, with a /dev and /tmp of its
// own, and a /proc that shows only the container's processes if it has a PID
// namespace.
func (r *root) copyMachine(n *Namespaces) error {
	if err := r.tmpfs(r.path, "mode=0755,size=16m"); err != nil {
		return err
	}
	// Without this, the folder that we are in would show up again inside.
	if err := unix.Mount("", r.path, "", unix.MS_UNBINDABLE, ""); err != nil {
		return err
	}
	skip := []string{"dev", "tmp"}
	if n.PID || n.JoinPID != nil {
		skip = append(skip, "proc")
	}
	if err := bindAll("/", r.path, skip); err != nil {
		return err
	}
	if err := r.bindTmp(n.Tmp); err != nil {
		return err
	}
	if len(skip) == 3 {
		if err := r.mountProc(); err != nil {
			return err
		}
	}
	return r.makeDev()
}

func (r *root) bindTmp(tmp string) error {
	at := filepath.Join(r.path, "tmp")
	if err := os.Mkdir(at, 0o1777); err != nil {
		return err
	}
	return bind(tmp, at)
}

func (r *root) mountProc() error {
	at := filepath.Join(r.path, "proc")
	if err := os.Mkdir(at, 0o555); err != nil {
		return err
	}
	r.writable = append(r.writable, at)
	return unix.Mount("proc", at, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// makeDev makes the devices that every program may use.
func (r *root) makeDev() error {
	dev := filepath.Join(r.path, "dev")
	if err := os.Mkdir(dev, 0o755); err != nil {
		return err
	}
	if err := r.tmpfs(dev, "mode=0755,size=64k"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx"} {
		if err := bindEntry("/dev", dev, name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	// Terminals are the machine's: the shim opens them outside.
	if err := bindEntry("/dev", dev, "pts"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	shm := filepath.Join(dev, "shm")
	if err := os.Mkdir(shm, 0o1777); err != nil {
		return err
	}
	r.writable = append(r.writable, dev, shm)
	return r.tmpfs(shm, "mode=1777,size=64m")
}

// bindAll mounts each entry of a folder into another.
func bindAll(from, to string, skip []string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(skip, e.Name()) {
			continue
		}
		if err := bindEntry(from, to, e.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// bindEntry mounts one file or folder, or copies a link.
func bindEntry(from, to, name string) error {
	source, target := filepath.Join(from, name), filepath.Join(to, name)
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		link, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(link, target)
	case info.IsDir():
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return err
		}
	}
	if err := bind(source, target); err != nil {
		// What cannot be mounted (it is unbindable, or is gone) is left out.
		if errors.Is(err, unix.EINVAL) {
			return nil
		}
		return err
	}
	return nil
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	return nil
}

// makeReadonly makes all read-only but what stays writable.
func (r *root) makeReadonly() error {
	if err := setAttributes(r.path, true, unix.MOUNT_ATTR_RDONLY, 0); err != nil {
		return err
	}
	for _, at := range r.writable {
		if err := setAttributes(at, false, 0, unix.MOUNT_ATTR_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

func setAttributes(path string, recursive bool, set, clear uint64) error {
	flags := uint(0)
	if recursive {
		flags = unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: set, Attr_clr: clear})
	if err != nil {
		return fmt.Errorf("mount attributes of %s: %w", path, err)
	}
	return nil
}

// enter makes it the root, and lets go of the machine's.
func (r *root) enter() error {
	if err := os.Chdir(r.path); err != nil {
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
