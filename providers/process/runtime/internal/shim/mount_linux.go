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

// mount mounts a volume at its target. Links on the way are followed inside the
// private root, whoever made them.
func (r *root) mount(m Mount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	at, err := r.ensure(filepath.Clean(m.Target), info.IsDir())
	if err != nil {
		return err
	}
	if err := bind(m.Source, at); err != nil {
		return err
	}
	r.volumes = append(r.volumes, at)
	if !m.Slave {
		if err := unix.Mount("", at, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
	}
	if m.Readonly {
		return setAttributes(at, m.Recursive, unix.MOUNT_ATTR_RDONLY, 0)
	}
	r.writable = append(r.writable, at)
	return nil
}

// ensure returns where a path of the private root is, and makes it if it is not
// there: a folder, or an empty file. It makes nothing on the machine.
func (r *root) ensure(path string, isDir bool) (string, error) {
	at, err := r.resolve(path)
	if err == nil {
		info, err := os.Stat(at)
		if err == nil && info.IsDir() != isDir {
			err = fmt.Errorf("%s is a folder in one of the two places, and a file in the other", path)
		}
		return at, err
	}
	if !errors.Is(err, os.ErrNotExist) || path == "/" {
		return "", err
	}
	parent, err := r.ensure(filepath.Dir(path), true)
	if err != nil {
		return "", err
	}
	if err := r.makeRoom(parent); err != nil {
		return "", err
	}
	at = filepath.Join(parent, filepath.Base(path))
	// A link that leads nowhere is in the way.
	if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink != 0 {
		if err := os.Remove(at); err != nil {
			return "", err
		}
	}
	if isDir {
		return at, os.Mkdir(at, 0o755)
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	return at, f.Close()
}

// resolve follows a path inside the private root.
func (r *root) resolve(path string) (string, error) {
	dir, err := unix.Open(r.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, strings.TrimPrefix(path, "/")+"/.", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if errors.Is(err, unix.ENOTDIR) {
		fd, err = unix.Openat2(dir, strings.TrimPrefix(path, "/"), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// maxShadowed is how many entries a folder may have that is put together anew.
const maxShadowed = 2000

// makeRoom makes sure that something can be made in a folder of the private root
// without making it on the machine: the folder is replaced by one in memory, with
// everything that was in it mounted again.
func (r *root) makeRoom(dir string) error {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return err
	}
	if slices.Contains(r.own, stat.Dev) || r.inVolume(dir) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > maxShadowed {
		return fmt.Errorf("%s is a folder of the machine with %d entries: use a mount path elsewhere", strings.TrimPrefix(dir, r.path), len(entries))
	}
	aside := filepath.Join(r.path, ".aside")
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	if err := bind(dir, aside); err != nil {
		return err
	}
	if err := r.tmpfs(dir, fmt.Sprintf("mode=%04o,uid=%d,gid=%d,size=1m", stat.Mode&0o755, stat.Uid, stat.Gid)); err != nil {
		return err
	}
	if err := bindAll(aside, dir, nil); err != nil {
		return err
	}
	if err := unix.Unmount(aside, unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Remove(aside)
}

func (r *root) inVolume(dir string) bool {
	return slices.ContainsFunc(r.volumes, func(v string) bool { return dir == v || strings.HasPrefix(dir, v+"/") })
}
