package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// How a directory of Files looks. It is what a kubelet writes, and what programs
// that watch their configuration go by:
//
//	..2026_01_02_15_04_05.123456789/   the files
//	..data -> ..2026_01_02_...         replaced by rename, so that it changes at once
//	a -> ..data/a                      what users see, one link for each top-level name
const (
	dataLink   = "..data"
	newLink    = "..data_tmp"
	ownPrefix  = ".." // of all names that are not users' files
	dirLayout  = "..2006_01_02_15_04_05.000000000"
	dirMode    = 0o755
	writeMode  = 0o600 // while a file is written
	nobodyElse = -1    // as a uid or gid: leave it as it is
)

// Write makes files the contents of directory dir, and reports whether they were
// not before. A reader that goes through the link ..data sees the old contents
// or the new, and never a part; so it is if the process dies midway, and the next
// Write clears away what is left over. If group is given, the files are the
// group's to read (see the pod's fsGroup).
//
// Calls for one directory must not overlap. Nobody else should write there.
func Write(dir string, files Files, group *int64) (changed bool, err error) {
	if err := files.Validate(); err != nil {
		return false, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	w := writer{root: root, files: files, group: group, step: func(string) error { return nil }}
	return w.write()
}

// writer is one run of Write.
type writer struct {
	root  *os.Root
	files Files
	group *int64
	// step is called before each step, for tests that die there.
	step func(what string) error
}

func (w *writer) write() (changed bool, err error) {
	current := w.current()
	if err := w.sweep(current); err != nil {
		return false, fmt.Errorf("clear away what a former write left: %w", err)
	}
	if current == "" || !w.isIn(current) {
		if current, err = w.swap(); err != nil {
			return false, err
		}
		changed = true
	}
	if err := w.link(); err != nil {
		return changed, fmt.Errorf("make the links to the files: %w", err)
	}
	if err := w.sweep(current); err != nil {
		return changed, fmt.Errorf("remove the former files: %w", err)
	}
	return changed, nil
}

// current returns the directory with the present files, or nothing.
func (w *writer) current() string {
	target, err := w.root.Readlink(dataLink)
	if err != nil || !isOwn(target) || strings.ContainsAny(target, `/\`) {
		return ""
	}
	if info, err := w.root.Lstat(target); err != nil || !info.IsDir() {
		return ""
	}
	return target
}

func isOwn(name string) bool {
	return len(name) > len(ownPrefix) && strings.HasPrefix(name, ownPrefix)
}

// sweep removes all that is the writer's own and not current: what was replaced,
// and what a write left that did not get to its end.
func (w *writer) sweep(current string) error {
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if !isOwn(name) || name == dataLink || name == current {
			continue
		}
		if err := w.do("remove "+name, func() error { return w.root.RemoveAll(name) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) do(what string, f func() error) error {
	if err := w.step(what); err != nil {
		return err
	}
	return f()
}

// swap writes the files to a directory of their own and makes it the current
// one.
func (w *writer) swap() (dir string, err error) {
	dir, err = w.makeDir()
	if err != nil {
		return "", fmt.Errorf("make a directory for the files: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		if err := w.writeFile(dir, name); err != nil {
			return "", fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := w.do("link", func() error { return w.root.Symlink(dir, newLink) }); err != nil {
		return "", err
	}
	if err := w.do("rename", func() error { return w.root.Rename(newLink, dataLink) }); err != nil {
		return "", err
	}
	return dir, nil
}

// makeDir makes a directory with a new name.
func (w *writer) makeDir() (string, error) {
	for {
		name := time.Now().UTC().Format(dirLayout)
		err := w.do("mkdir "+name, func() error { return w.mkdir(name) })
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
	}
}

// mkdir makes a directory with the mode that it should have, regardless of the umask.
func (w *writer) mkdir(name string) error {
	if err := w.root.Mkdir(name, dirMode); err != nil {
		return err
	}
	if w.group != nil {
		if err := w.root.Lchown(name, nobodyElse, int(*w.group)); err != nil {
			return err
		}
	}
	return w.root.Chmod(name, w.mode(fs.ModeDir|dirMode))
}

func (w *writer) mode(mode fs.FileMode) fs.FileMode {
	if w.group != nil {
		mode = grouped(mode, groupReads)
	}
	return mode & settable
}

func (w *writer) writeFile(dir, name string) error {
	parents := strings.Split(path.Dir(name), "/")
	for i := range parents {
		parent := path.Join(dir, path.Join(parents[:i+1]...))
		if _, err := w.root.Lstat(parent); err == nil {
			continue
		}
		if err := w.do("mkdir "+parent, func() error { return w.mkdir(parent) }); err != nil {
			return err
		}
	}
	return w.do("write "+name, func() error { return w.create(path.Join(dir, name), w.files[name]) })
}

func (w *writer) create(name string, file File) error {
	f, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, writeMode)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Data)
	if uid, gid := w.owner(file); err == nil && (uid != nobodyElse || gid != nobodyElse) {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		err = f.Chmod(w.mode(file.Mode.Perm()))
	}
	return errors.Join(err, f.Close())
}

func (w *writer) owner(file File) (uid, gid int) {
	uid, gid = nobodyElse, nobodyElse
	if file.UID != nil {
		uid = int(*file.UID)
	}
	if w.group != nil {
		gid = int(*w.group)
	}
	return uid, gid
}

// isIn reports whether dir has the files, all of them and nothing else.
func (w *writer) isIn(dir string) bool {
	found := 0
	err := fs.WalkDir(w.root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, wanted := w.files[strings.TrimPrefix(name, dir+"/")]
		if !wanted || !w.isAt(name, file) {
			return errDiffers
		}
		found++
		return nil
	})
	return err == nil && found == len(w.files)
}

var errDiffers = errors.New("differs")

func (w *writer) isAt(name string, file File) bool {
	info, err := w.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&settable != w.mode(file.Mode.Perm()) || info.Size() != int64(len(file.Data)) {
		return false
	}
	uid, gid := w.owner(file)
	if isUID, isGID, known := ownerOf(info); known && (uid != nobodyElse && uid != isUID || gid != nobodyElse && gid != isGID) {
		return false
	}
	data, err := w.root.ReadFile(name)
	return err == nil && bytes.Equal(data, file.Data)
}

// link makes the links that users see, and removes those that lead nowhere.
func (w *writer) link() error {
	wanted := map[string]bool{}
	for name := range w.files {
		top, _, _ := strings.Cut(name, "/")
		wanted[top] = true
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := w.linkTo(name); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		target, err := w.root.Readlink(name)
		if err != nil || isOwn(name) || wanted[name] || target != path.Join(dataLink, name) {
			continue
		}
		if err := w.do("unlink "+name, func() error { return w.root.Remove(name) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) linkTo(name string) error {
	target := path.Join(dataLink, name)
	if is, err := w.root.Readlink(name); err == nil && is == target {
		return nil
	}
	return w.do("link "+name, func() error {
		if err := w.root.RemoveAll(name); err != nil { // anything there hides the file
			return err
		}
		return w.root.Symlink(target, name)
	})
}
