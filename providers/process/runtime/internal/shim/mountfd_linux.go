package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounts are made by descriptors: a tree is cloned from an open directory or file,
// gets its attributes while nobody sees it, and is attached to an open directory or
// file. No path is looked up twice, so a link that appears in between has no effect.

// openTries is how often a lookup that met a rename in the directories on its way is
// tried again. A pod can make them for ever.
const openTries = 1000

// openAt opens path below dir for use as a place, without reading or writing it.
// resolve are the RESOLVE_ constants that apply.
func openAt(dir int, path string, resolve uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS}
	for range openTries {
		fd, err := unix.Openat2(dir, path, how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
	return nil, fmt.Errorf("open %s: directories on the way are renamed all the time", path)
}

// openSource opens a path of the machine that has no links, as it was when it was
// allowed. One that has a link by now is an error: it may lead anywhere.
func openSource(path string) (*os.File, error) {
	f, err := openAt(unix.AT_FDCWD, path, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s has become a link since it was allowed: %w", path, err)
	}
	return f, err
}

// openEntry opens an entry of a directory, and a link as such.
func openEntry(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(fdOf(dir), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func fdOf(f *os.File) int { return int(f.Fd()) }

// cloneTree makes a mount of an open directory or file, with all that is mounted
// below it, which is attached nowhere yet.
func cloneTree(f *os.File) (*os.File, error) {
	fd, err := unix.OpenTree(fdOf(f), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, fmt.Errorf("clone %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// newFileSystem makes a file system that is attached nowhere yet. Options are pairs
// of names and values.
func newFileSystem(kind string, attributes int, options ...string) (*os.File, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a %s: %w", kind, err)
	}
	defer func() { _ = unix.Close(fs) }()
	for i := 0; i+1 < len(options); i += 2 {
		if err := unix.FsconfigSetString(fs, options[i], options[i+1]); err != nil {
			return nil, fmt.Errorf("make a %s with %s=%s: %w", kind, options[i], options[i+1], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("make a %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, fmt.Errorf("mount a %s: %w", kind, err)
	}
	return os.NewFile(uintptr(fd), kind), nil
}

// attach attaches a tree where at is.
func attach(tree, at *os.File) error {
	err := unix.MoveMount(fdOf(tree), "", fdOf(at), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("attach %s: %w", tree.Name(), err)
	}
	return nil
}

// change changes the attributes of a mount.
func change(tree *os.File, recursive bool, attributes unix.MountAttr) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(fdOf(tree), "", flags, &attributes); err != nil {
		return fmt.Errorf("mount attributes of %s: %w", tree.Name(), err)
	}
	return nil
}

// mountID is the number of the mount that an open file is in.
func mountID(f *os.File) (uint64, error) {
	var stat unix.Statx_t
	if err := unix.Statx(fdOf(f), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat); err != nil {
		return 0, fmt.Errorf("which mount %s is in: %w", f.Name(), err)
	}
	return stat.Mnt_id, nil
}

// mountParents reads which mount each mount is in.
func mountParents() (map[uint64]uint64, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	parents := map[uint64]uint64{}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(line, " ", 3)
		if len(fields) < 3 {
			continue
		}
		id, err1 := strconv.ParseUint(fields[0], 10, 64)
		parent, err2 := strconv.ParseUint(fields[1], 10, 64)
		if err1 == nil && err2 == nil {
			parents[id] = parent
		}
	}
	return parents, nil
}

// detachBelow detaches what is mounted below directories of a private root that is
// mounted at a path: a container that keeps mounts of other pods, though it cannot
// reach them, keeps what they unmount.
func detachBelow(root string, dirs []string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, point := range mountPoints(string(data), root, dirs) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("detach %s: %w", point, err)
		}
	}
	return nil
}

// mountPoints are the outermost mounts below directories of a root, by what mountinfo
// has of them.
func mountPoints(mountinfo, root string, dirs []string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.SplitN(line, " ", 6)
		if len(fields) < 6 {
			continue
		}
		point := unescape.Replace(fields[4])
		below := func(dir string) bool { return strings.HasPrefix(point, filepath.Join(root, dir)+"/") }
		inner := func(outer string) bool { return point == outer || strings.HasPrefix(point, outer+"/") }
		if slices.ContainsFunc(dirs, below) && !slices.ContainsFunc(points, inner) {
			points = append(points, point)
		}
	}
	return points
}

func stat(f *os.File) (unix.Stat_t, error) {
	var s unix.Stat_t
	if err := unix.Fstat(fdOf(f), &s); err != nil {
		return s, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return s, nil
}

func isDir(f *os.File) (bool, error) {
	s, err := stat(f)
	return s.Mode&unix.S_IFMT == unix.S_IFDIR, err
}
