package filetree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// readBatch is how many entries of a directory are read at a time.
	readBatch = 1024
	// maxLinked is how many files are remembered of which not all names were seen.
	maxLinked = 1 << 18
)

// Measure returns what a directory takes of its file system with all that is in it, or
// a file. Links are not followed, other file systems below it are left out, and a
// file with several names counts once. It needs memory for directories, but not for
// files with one name, and for few others, and it ends with ctx. A directory that does not
// exist takes nothing. With an error, the result is what was counted so far: if that is
// fs.ErrPermission, all but what may not be read.
func Measure(ctx context.Context, dir string) (Used, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) {
		var file unix.Stat_t
		if err = unix.Lstat(dir, &file); err == nil {
			return Used{Bytes: file.Blocks * 512, Inodes: 1}, nil
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return Used{}, nil
	}
	if err != nil {
		return Used{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	m := &meter{ctx: ctx, reporter: reporterOf(ctx), linked: map[uint64]uint64{}, room: maxLinked}
	if err := m.measure(os.NewFile(uintptr(fd), dir)); err != nil {
		return m.sum(), fmt.Errorf("measure %s: %w", dir, err)
	}
	return m.sum(), nil
}

// meter sums up a tree. It holds the descriptors of the root and of one directory, and goes back by
// "..", which is checked, or from the root by names: a tree may be deeper than a process may have descriptors.
type meter struct {
	ctx      context.Context
	reporter reporter
	device   uint64
	linked   map[uint64]uint64 // how many more names those inodes have that were counted with one
	room     int               // how many there may be; 0 once there were so many
	shares   float64           // of inodes, of which each name counts for a share
	used     Used
	skipped  error // why something was left out
}

// step is a directory on the way down.
type step struct {
	name    string // in the one above
	inode   uint64
	pending []string // directories that are still to be measured
}

// errMoved is found where a directory was moved while it was measured, with what is not measured yet.
var errMoved = errors.New("its directories are being moved")

func (m *meter) measure(root *os.File) error {
	dir := root
	enter := func(to *os.File) {
		if dir != root {
			_ = dir.Close()
		}
		dir = to
	}
	defer func() {
		enter(root)
		_ = root.Close()
	}()
	var info unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &info); err != nil {
		return err
	}
	m.device = info.Dev
	m.count(info.Blocks)
	pending, err := m.list(dir)
	if err != nil {
		return err
	}
	way := []step{{"", info.Ino, pending}}
	for {
		here := &way[len(way)-1]
		if len(here.pending) == 0 {
			if way = way[:len(way)-1]; len(way) == 0 {
				return m.skipped
			}
			up, err := m.open(dir, "..", way[len(way)-1].inode)
			if err != nil { // it was moved to elsewhere
				if up, way, err = m.find(root, way); err != nil {
					return err
				}
			}
			enter(up)
			continue
		}
		name := here.pending[len(here.pending)-1]
		here.pending = here.pending[:len(here.pending)-1]
		below, err := m.open(dir, name, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, errElsewhere) {
			continue // it has changed, or another file system is mounted there
		}
		if errors.Is(err, fs.ErrPermission) {
			m.skip(err)
			continue
		}
		if err != nil {
			return err
		}
		enter(below)
		if err := unix.Fstat(int(dir.Fd()), &info); err != nil {
			return err
		}
		if pending, err = m.list(dir); err != nil {
			return err
		}
		way = append(way, step{name, info.Ino, pending})
	}
}

// find goes a way again, from the root, and returns the last directory on it. What is not where it was is
// left out, with all that was to be measured below it: the way ends before it.
func (m *meter) find(root *os.File, way []step) (*os.File, []step, error) {
	if err := m.ctx.Err(); err != nil {
		return nil, nil, err
	}
	at := root
	for i, s := range way {
		if i == 0 {
			continue
		}
		next, err := m.open(at, s.name, s.inode)
		if err != nil {
			m.skip(errMoved)
			return at, way[:i], nil
		}
		if at != root {
			_ = at.Close()
		}
		at = next
	}
	return at, way, nil
}

// skip remembers why something was left out. That it may not be read, which does not change, hides no other
// reason.
func (m *meter) skip(why error) {
	if m.skipped == nil || errors.Is(m.skipped, fs.ErrPermission) {
		m.skipped = why
	}
}

// count counts a file or directory of this many blocks.
func (m *meter) count(blocks int64) {
	m.used.Bytes += blocks * 512
	m.used.Inodes++
}

// countName counts one of several names of a file. If there are more such files than room for them, each
// name counts for its share: what has its other names elsewhere is then not counted as a whole.
func (m *meter) countName(inode, names uint64, blocks int64) {
	left, counted := m.linked[inode]
	switch {
	case counted && left > 1:
		m.linked[inode] = left - 1
	case counted:
		delete(m.linked, inode)
	case len(m.linked) < m.room:
		m.linked[inode] = names - 1
		m.count(blocks)
	default:
		m.room = 0                                  // or a later name of a file that is not remembered counted as a whole
		m.used.Bytes += blocks * 512 / int64(names) //nolint:gosec // few
		m.shares += 1 / float64(names)
	}
}

// sum returns what was counted so far.
func (m *meter) sum() Used {
	return Used{Bytes: m.used.Bytes, Inodes: m.used.Inodes + int64(math.Round(m.shares))}
}

var errElsewhere = errors.New("it is on another file system")

// open opens a directory beside or above another one; the inode is checked if it is
// not 0.
func (m *meter) open(at *os.File, name string, inode uint64) (*os.File, error) {
	fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var info unix.Stat_t
	err = unix.Fstat(fd, &info)
	switch {
	case err != nil:
	case info.Dev != m.device:
		err = errElsewhere
	case inode != 0 && info.Ino != inode:
		err = errMoved
	default:
		return os.NewFile(uintptr(fd), name), nil
	}
	_ = unix.Close(fd)
	return nil, err
}

// list counts what is in a directory, and returns the directories in it.
func (m *meter) list(dir *os.File) (directories []string, err error) {
	for {
		if err := m.ctx.Err(); err != nil {
			return nil, err
		}
		names, err := dir.Readdirnames(readBatch)
		for _, name := range names {
			var info unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), name, &info, unix.AT_SYMLINK_NOFOLLOW) != nil || info.Dev != m.device {
				continue
			}
			switch {
			case info.Mode&unix.S_IFMT == unix.S_IFDIR:
				directories = append(directories, name)
				m.count(info.Blocks)
			case info.Nlink > 1:
				m.countName(info.Ino, uint64(info.Nlink), info.Blocks) // which is of another type on other machines
			default:
				m.count(info.Blocks)
			}
		}
		m.reporter.report(m.sum())
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) || err == nil && len(names) == 0 {
			return directories, nil // to its end, or it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
	}
}
