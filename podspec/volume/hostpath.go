package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// HostAccess is a path of the host that a pod asks for.
type HostAccess struct {
	// Pod is who asks.
	Pod *corev1.Pod
	// Volume is the name of the volume in the pod.
	Volume string
	// Path is absolute, clean and free of links, as far as it exists.
	Path string
	// PersistentVolume is the name of the PersistentVolume that has the path,
	// if the pod itself does not name it but claims a volume.
	PersistentVolume string
}

// The modes of what the types DirectoryOrCreate and FileOrCreate create.
const (
	createdDirectoryMode fs.FileMode = 0o755
	createdFileMode      fs.FileMode = 0o644
)

// resolveHostPath checks a hostPath volume and returns the path without links,
// which is what the policy allowed.
func (m *Manager) resolveHostPath(access HostAccess) (string, error) {
	if !filepath.IsAbs(access.Path) {
		return "", permanentf("hostPath %q is not absolute", access.Path)
	}
	resolved, err := resolveExisting(filepath.Clean(access.Path))
	if err != nil {
		return "", fmt.Errorf("hostPath type check failed: %w", err)
	}
	access.Path = resolved
	if m.opts.AllowHostPath == nil {
		return "", errdefs.AsPermanent(Unsupported{access.Volume, "hostPath"})
	}
	if err := m.opts.AllowHostPath(access); err != nil {
		return "", errdefs.AsPermanent(fmt.Errorf("hostPath %q is not allowed: %w", resolved, err))
	}
	return resolved, nil
}

// resolveExisting follows the links of a path as far as it exists.
func resolveExisting(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	parent := filepath.Dir(path)
	if !errors.Is(err, fs.ErrNotExist) || parent == path {
		return resolved, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("path %s is a link to nothing", path)
	}
	resolved, err = resolveExisting(parent)
	return filepath.Join(resolved, filepath.Base(path)), err
}

// hostPathTypes says what each type demands, but for those that create.
var hostPathTypes = map[corev1.HostPathType]struct {
	noun string
	is   func(fs.FileMode) bool
}{
	corev1.HostPathDirectory: {"a directory", fs.FileMode.IsDir},
	corev1.HostPathFile:      {"a file", fs.FileMode.IsRegular},
	corev1.HostPathSocket:    {"a socket file", func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 }},
	corev1.HostPathCharDev:   {"a character device", func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 }},
	corev1.HostPathBlockDev: {"a block device", func(m fs.FileMode) bool {
		return m&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice
	}},
}

// checkHostPath checks that at path is what a hostPath volume of that type
// demands, and creates it where the type says so.
func checkHostPath(path string, typ *corev1.HostPathType) error {
	demanded := corev1.HostPathUnset
	if typ != nil {
		demanded = *typ
	}
	var err error
	switch demanded {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		demanded, err = corev1.HostPathDirectory, createDirectory(path)
	case corev1.HostPathFileOrCreate:
		demanded, err = corev1.HostPathFile, createFile(path)
	}
	if err != nil {
		return err
	}
	want, known := hostPathTypes[demanded]
	if !known {
		return permanentf("unknown hostPath type %q", demanded)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("hostPath type check failed: path %s does not exist", path)
	case err != nil:
		return fmt.Errorf("hostPath type check failed: %w", err)
	case !want.is(info.Mode()):
		return fmt.Errorf("hostPath type check failed: %s is not %s", path, want.noun)
	}
	return nil
}

// createDirectory makes a directory unless something is there. The umask does
// not count.
func createDirectory(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, createdDirectoryMode); err != nil {
		return err
	}
	return os.Chmod(path, createdDirectoryMode)
}

// createFile makes an empty file unless something is there. Its directory has to
// exist.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, createdFileMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(createdFileMode), f.Close())
}
