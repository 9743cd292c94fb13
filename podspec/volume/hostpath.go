package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// HostAccess is a path of the host that a pod asks for.
type HostAccess struct {
	// Pod is the pod that has the volume.
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
	file, err := openWithoutLinks(path)
	var info fs.FileInfo
	if err == nil {
		info, err = file.Stat()
		err = errors.Join(err, file.Close())
	}
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

// pinHostPath returns the path at which a container's runtime is to find what is at
// a path of the host, which has no links and was allowed: a pod that may write above
// it must not be able to lead the runtime elsewhere. So it is a mount of its own,
// unless nobody but the host's operator can change what is above it, or the runtime
// follows no links.
func (m *Manager) pinHostPath(access HostAccess, mount *corev1.VolumeMount) (string, error) {
	// One whose mounts show on the host is of a privileged container, which needs no
	// trick for that; a mount of its own would not show there.
	if m.opts.NoLinksFollowed || showsOnHost(mount) || m.isFixed(access) {
		return access.Path, nil
	}
	file, err := openWithoutLinks(access.Path)
	if errors.Is(err, fs.ErrNotExist) {
		// Of no type: a runtime makes a directory, by its path.
		if err := createDirectory(access.Path); err != nil {
			return "", err
		}
		file, err = openWithoutLinks(access.Path)
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	if m.opts.NoMounts {
		return "", permanentf("hostPath %q is below a directory that pods may change, and this process makes no mounts: allow the path itself, or let it mount", access.Path)
	}
	// A tree that has the volumes of pods in it has these mounts, too.
	recursive := access.Path != m.pods && !strings.HasPrefix(m.pods, strings.TrimSuffix(access.Path, "/")+"/")
	return m.bindPinned(access.Pod, access.Volume, "host:"+access.Path, file, func(file *os.File, target string) error {
		return bindTree(file, target, recursive)
	})
}

// showsOnHost reports whether what a container mounts at a mount of its is to show on the host.
func showsOnHost(mount *corev1.VolumeMount) bool {
	return mount.MountPropagation != nil && *mount.MountPropagation == corev1.MountPropagationBidirectional
}

// isFixed reports whether what is above a path that is allowed is out of reach of
// pods: it is allowed itself, and not what it is in; or all of the host is.
func (m *Manager) isFixed(access HostAccess) bool {
	return m.allows(access, "/") || !m.allows(access, filepath.Dir(access.Path))
}

// allows reports whether another path of the host would be allowed, too.
func (m *Manager) allows(access HostAccess, path string) bool {
	access.Path = path
	return m.opts.AllowHostPath != nil && m.opts.AllowHostPath(access) == nil
}
