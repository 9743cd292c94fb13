package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxLinks is how many links a path may have, as for Linux itself.
const maxLinks = 40

// locator follows a subPath through a volume, link by link, so that each is
// known to stay in it. Somebody may change the volume meanwhile; the path is to
// be opened with openBeneath, which follows none.
type locator struct {
	root    *os.Root
	dir     string      // the volume's directory without links
	mode    fs.FileMode // of directories that are made
	done    []string    // free of links
	pending []string
	links   int
}

// locate returns the path in the volume at dir, free of links, of what is at
// subPath, and makes a directory there if nothing is.
func locate(dir, subPath string) (string, error) {
	elements := strings.Split(filepath.ToSlash(subPath), "/")
	if filepath.IsAbs(subPath) || slices.Contains(elements, "..") || strings.ContainsRune(subPath, 0) {
		return "", permanentf("subPath %q must be relative and have no '..'", subPath)
	}
	base, err := openWithoutLinks(dir)
	if err != nil {
		return "", err
	}
	defer base.Close()
	root, err := os.OpenRoot(placeName(base))
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return "", err
	}
	l := locator{root: root, dir: dir, mode: info.Mode() & (fs.ModePerm | fs.ModeSetgid | fs.ModeSticky), pending: elements}
	for len(l.pending) > 0 {
		if err := l.next(); err != nil {
			return "", fmt.Errorf("subPath %q: %w", subPath, err)
		}
	}
	return path.Join(append([]string{"."}, l.done...)...), nil
}

// next takes the next element of the path.
func (l *locator) next() error {
	element := l.pending[0]
	l.pending = l.pending[1:]
	switch element {
	case "", ".":
		return nil
	case "..": // of a link
		if len(l.done) == 0 {
			return errEscapes
		}
		l.done = l.done[:len(l.done)-1]
		return nil
	}
	name := path.Join(append(slices.Clone(l.done), element)...)
	info, err := l.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = l.mkdir(name)
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return l.resolve(name)
	}
	if len(l.pending) > 0 && !info.IsDir() {
		return fmt.Errorf("%s is not a directory", name)
	}
	l.done = append(l.done, element)
	return nil
}

func (l *locator) mkdir(name string) (fs.FileInfo, error) {
	err := l.root.Mkdir(name, l.mode.Perm())
	if err == nil {
		err = l.root.Chmod(name, l.mode) // despite the umask
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // a container may be faster
		return nil, err
	}
	return l.root.Lstat(name)
}

var errEscapes = errors.New("a link leads out of the volume")

// follow puts the target of a link before what is pending. An absolute one is
// meant on the host, where it may lead back to the volume.
func (l *locator) resolve(name string) error {
	if l.links++; l.links > maxLinks {
		return errors.New("too many links")
	}
	target, err := l.root.Readlink(name)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		rest, ok := strings.CutPrefix(target+"/", l.dir+"/")
		if !ok {
			return errEscapes
		}
		target, l.done = rest, nil
	}
	l.pending = append(strings.Split(filepath.ToSlash(target), "/"), l.pending...)
	return nil
}

// bindPinned mounts what is open where containers cannot reach, and returns where.
// what distinguishes it from others of the volume.
func (m *Manager) bindPinned(pod *corev1.Pod, volume, what string, file *os.File, bind func(file *os.File, target string) error) (string, error) {
	podDir, err := m.podDir(pod.UID)
	if err != nil {
		return "", err
	}
	if !isElement(volume) {
		return "", permanentf("%q is no name of a volume", volume)
	}
	sum := sha256.Sum256([]byte(what))
	target := filepath.Join(podDir, subPathsDir, volume, hex.EncodeToString(sum[:12]))
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if there, err := os.Stat(target); err == nil && os.SameFile(there, info) {
		return target, nil // bound for another container, or by another process
	}
	if err := clearTarget(target); err != nil {
		return "", err
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return "", err
	}
	return target, bind(file, target)
}

// bindSlave is bindMount of what is the host's: what is unmounted on target later stays there.
func bindSlave(file *os.File, target string) error {
	if err := bindMount(file, target); err != nil {
		return err
	}
	return makeSlave(target)
}

// clearTarget removes what is bound to target, as often as it is.
func clearTarget(target string) error {
	for {
		if err := makeSlave(target); err != nil {
			return err
		}
		was, err := unmount(target)
		if err != nil {
			return err
		}
		if !was {
			break
		}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeTarget makes what a directory or file can be mounted on.
func makeTarget(target string, isDir bool) error {
	if err := os.MkdirAll(filepath.Dir(target), innerMode); err != nil {
		return err
	}
	if isDir {
		return os.Mkdir(target, innerMode)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, createdFileMode)
	if err != nil {
		return err
	}
	return f.Close()
}
