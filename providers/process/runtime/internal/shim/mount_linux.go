package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// mount mounts a volume at its target. Links on the way are followed inside the
// private root, also those that the pod made.
func (r *root) mount(m Mount) error {
	source, err := openSource(m.Source)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	dir, err := isDir(source)
	if err != nil {
		return err
	}
	at, err := r.ensure(filepath.Clean(m.Target), dir)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	tree, err := cloneTree(source)
	if err != nil {
		return err
	}
	if !m.Slave {
		err = change(tree, true, unix.MountAttr{Propagation: unix.MS_PRIVATE})
	}
	if err == nil && m.Readonly {
		err = change(tree, m.Recursive, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	if err == nil {
		err = errors.Join(attach(tree, at), r.remember(r.volumes, tree))
	}
	if err != nil || m.Readonly {
		return errors.Join(err, tree.Close())
	}
	r.writable = append(r.writable, tree)
	return nil
}

// open opens what is at a path of the private root.
func (r *root) open(path string) (*os.File, error) {
	return openAt(fdOf(r.dir), path, unix.RESOLVE_IN_ROOT)
}

// ensure opens a path of the private root, and makes it if it is not there: a
// directory, or an empty file. It makes nothing on the machine, and in volumes
// nothing but in a directory that it has open.
func (r *root) ensure(path string, dir bool) (*os.File, error) {
	at, err := r.open(path)
	if errors.Is(err, os.ErrNotExist) && path != "/" {
		at, err = r.make(path, dir)
	}
	if err != nil {
		return nil, err
	}
	is, err := isDir(at)
	if err == nil && is != dir {
		err = fmt.Errorf("%s is a directory in one of the two places, and a file in the other", path)
	}
	if err != nil {
		return nil, errors.Join(err, at.Close())
	}
	return at, nil
}

func (r *root) make(path string, dir bool) (*os.File, error) {
	parent, err := r.ensure(filepath.Dir(path), true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = parent.Close() }()
	inVolume, err := r.isInVolume(parent)
	if err != nil {
		return nil, err
	}
	place := parent
	if !inVolume {
		if place, err = r.makeRoom(parent); err != nil {
			return nil, err
		}
		defer func() { _ = place.Close() }()
	}
	name := filepath.Base(path)
	at, err := makeEntry(place, name, dir)
	if !errors.Is(err, os.ErrExist) {
		return at, err
	}
	// A link that leads nowhere is in the way, or somebody was faster.
	if !inVolume {
		if err := unix.Unlinkat(fdOf(place), name, 0); err != nil {
			return nil, &os.PathError{Op: "remove", Path: path, Err: err}
		}
		return makeEntry(place, name, dir)
	}
	at, err = openEntry(place, name)
	if err != nil {
		return nil, err
	}
	s, err := stat(at)
	if err == nil && s.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = fmt.Errorf("%s is a link in a volume that leads nowhere: remove it, or use another mount path", path)
	}
	if err != nil {
		return nil, errors.Join(err, at.Close())
	}
	return at, nil
}

func makeEntry(parent *os.File, name string, dir bool) (*os.File, error) {
	if dir {
		return makeDirectory(parent, name, 0o755)
	}
	return makeFile(parent, name)
}

// maxShadowed is how many entries a directory may have that is replaced.
const maxShadowed = 2000

// makeRoom makes sure that something can be made in a directory of the private root
// without making it on the machine: the directory is replaced by one in memory, with
// everything that was in it mounted again. It returns the directory to use.
func (r *root) makeRoom(dir *os.File) (*os.File, error) {
	id, err := mountID(dir)
	if err != nil {
		return nil, err
	}
	if r.own[id] {
		return duplicate(dir)
	}
	s, err := stat(dir)
	if err != nil {
		return nil, err
	}
	names, err := namesOf(dir)
	if err != nil {
		return nil, err
	}
	if len(names) > maxShadowed {
		return nil, fmt.Errorf("%s is a directory of the machine with %d entries: use a mount path elsewhere", dir.Name(), len(names))
	}
	place, err := r.memory(dir, "mode", fmt.Sprintf("%04o", s.Mode&0o755), "uid", strconv.Itoa(int(s.Uid)), "gid", strconv.Itoa(int(s.Gid)), "size", "1m")
	if err != nil {
		return nil, err
	}
	// dir is what was there before: what is on top of it now does not count.
	if err := bindAll(dir, place, nil); err != nil {
		return nil, errors.Join(err, place.Close())
	}
	return place, nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// isInVolume reports whether an open directory is in a volume of the container, or
// in what is mounted there.
func (r *root) isInVolume(dir *os.File) (bool, error) {
	id, err := mountID(dir)
	if err != nil {
		return false, err
	}
	if r.own[id] || r.volumes[id] {
		return r.volumes[id], nil
	}
	parents, err := mountParents()
	if err != nil {
		return false, err
	}
	for range len(parents) {
		parent, ok := parents[id]
		if !ok || r.own[parent] || r.volumes[parent] {
			return r.volumes[parent], nil
		}
		id = parent
	}
	return false, nil
}
