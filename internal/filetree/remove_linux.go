package filetree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// ownerAll is what it takes to empty a directory.
	ownerAll = 0o700
	// batch is how many bytes of names are read at a time.
	batch = 64 << 10
	// openAtOnce is how many directories are open at once; the way back to those
	// above goes by "..", which is checked.
	openAtOnce = 32
)

// errMounted says that something is mounted in the tree.
var errMounted = errors.New("is on another file system: unmount it, it is not removed")

// Remove removes what name is in a directory, with all that is below it. It follows
// no link and enters no other file system: one that is mounted in the tree is an
// error, and stays. A directory whose owner, who may be our own user, has taken away
// rights gets them back. What somebody else removes meanwhile is not missed. name is
// one element.
func Remove(dir, name string) error { return RemoveUntil(context.Background(), dir, name) }

// RemoveUntil is Remove until ctx ends, which is an error unless nothing is left.
func RemoveUntil(ctx context.Context, dir, name string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	id, err := identify(fd)
	if err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	r := &remover{device: id.device}
	defer r.close()
	if err := r.remove(ctx, &level{fd: fd, id: id}, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir+"/"+name, err)
	}
	return nil
}

// remover is one removal. Its levels are the directories from the top of the tree to
// the one that is being emptied.
type remover struct {
	device uint64
	levels []level
	buffer []byte
}

// level is a directory that is being emptied.
type level struct {
	fd   int // -1 if it is closed for now
	name string
	id   identity
	rest []string // names that were read and not removed yet
}

// identity is which file something is.
type identity struct{ device, inode uint64 }

func identify(fd int) (identity, error) {
	var s unix.Stat_t
	err := unix.Fstat(fd, &s)
	return identity{uint64(s.Dev), s.Ino}, err //nolint:unconvert // Dev is narrower on some architectures
}

func (r *remover) close() {
	for _, l := range r.levels {
		if l.fd >= 0 {
			_ = unix.Close(l.fd)
		}
	}
}

// remove removes an entry of a directory, without recursion: a tree may be deeper
// than any stack of calls should be.
func (r *remover) remove(ctx context.Context, parent *level, name string) error {
	done, err := r.tryUnlink(parent.fd, name)
	if err != nil || done {
		return err
	}
	if err := r.enter(parent.fd, name); err != nil {
		return err
	}
	for len(r.levels) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		current := &r.levels[len(r.levels)-1]
		entry, err := r.next(current)
		if err != nil {
			return err
		}
		if entry == "" { // it is empty
			if err := r.leave(parent); err != nil {
				return err
			}
			continue
		}
		done, err := r.tryUnlink(current.fd, entry)
		if err == nil && !done {
			err = r.enter(current.fd, entry)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", printable(entry), err)
		}
	}
	return nil
}

// tryUnlink removes what is no directory, and reports whether it was none.
func (r *remover) tryUnlink(dir int, name string) (bool, error) {
	err := unix.Unlinkat(dir, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return true, nil
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EPERM): // POSIX has EPERM for directories
		var s unix.Stat_t
		if statErr := unix.Fstatat(dir, name, &s, unix.AT_SYMLINK_NOFOLLOW); statErr != nil {
			return errors.Is(statErr, unix.ENOENT), ignoreGone(statErr)
		}
		if s.Mode&unix.S_IFMT == unix.S_IFDIR {
			return false, nil
		}
		return false, err
	case errors.Is(err, unix.EBUSY):
		return false, errMounted
	}
	return false, err
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// enter opens a directory to empty it.
func (r *remover) enter(dir int, name string) error {
	fd, err := openDirectory(dir, name)
	if err != nil {
		return err
	}
	id, err := identify(fd)
	if err == nil && id.device != r.device {
		err = errMounted
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	r.levels = append(r.levels, level{fd: fd, name: name, id: id})
	if old := len(r.levels) - 1 - openAtOnce; old >= 0 && r.levels[old].fd >= 0 {
		_ = unix.Close(r.levels[old].fd)
		r.levels[old].fd = -1
	}
	return nil
}

// openDirectory opens a directory for reading, and takes the rights for that if it
// has to.
func openDirectory(dir int, name string) (int, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	place, err := unix.Openat(dir, name, flags|unix.O_PATH, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(place) }()
	var s unix.Stat_t
	if err := unix.Fstat(place, &s); err != nil {
		return -1, err
	}
	if s.Mode&ownerAll != ownerAll {
		// By its descriptor: the name may mean something else by now.
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", place), ownerAll); err != nil {
			return -1, err
		}
	}
	return unix.Openat(place, ".", flags|unix.O_RDONLY, 0)
}

// next returns the next entry of a directory, or nothing if it has none.
func (r *remover) next(l *level) (string, error) {
	if len(l.rest) == 0 {
		// What was read before is gone by now, so the reading begins again.
		if _, err := unix.Seek(l.fd, 0, 0); err != nil {
			return "", err
		}
		if r.buffer == nil {
			r.buffer = make([]byte, batch)
		}
		for {
			n, err := unix.ReadDirent(l.fd, r.buffer)
			if err != nil || n <= 0 {
				return "", err
			}
			if _, _, l.rest = unix.ParseDirent(r.buffer[:n], -1, nil); len(l.rest) > 0 {
				break
			}
		}
	}
	entry := l.rest[0]
	l.rest = l.rest[1:]
	return entry, nil
}

// leave removes the directory that is empty now, from the one above.
func (r *remover) leave(top *level) error {
	current := r.levels[len(r.levels)-1]
	above := top
	if len(r.levels) > 1 {
		above = &r.levels[len(r.levels)-2]
		if above.fd < 0 {
			if err := reopen(above, current.fd); err != nil {
				return err
			}
		}
	}
	_ = unix.Close(current.fd)
	r.levels = r.levels[:len(r.levels)-1]
	err := unix.Unlinkat(above.fd, current.name, unix.AT_REMOVEDIR)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTEMPTY):
		// Somebody goes on in it; it is no directory of this tree that cannot be
		// emptied, so another round does it, or the next removal.
		return fmt.Errorf("%s: %w", printable(current.name), err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s %w", printable(current.name), errMounted)
	}
	return err
}

// reopen opens a directory again by the way up from one in it, if it still is where
// it was.
func reopen(l *level, below int) error {
	fd, err := unix.Openat(below, "..", unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	id, err := identify(fd)
	if err == nil && id != l.id {
		err = errors.New("it was moved while it was removed: try again")
	}
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("%s: %w", printable(l.name), err)
	}
	l.fd = fd
	return nil
}

// printable is a name for a message: names may be any bytes.
func printable(name string) string { return strings.ToValidUTF8(name, "?") }
