package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// setUpEmptyDir makes an emptyDir. One that is there stays as it is.
func (m *Manager) setUpEmptyDir(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, dir string) error {
	if what := unsupportedMedium(v.EmptyDir); what != "" {
		return errdefs.AsPermanent(Unsupported{v.Name, what})
	}
	if v.EmptyDir == nil || v.EmptyDir.Medium == corev1.StorageMediumDefault {
		return makeDirectory(dir, fsGroup(pod))
	}
	return m.makeMemory(ctx, dir, fsGroup(pod), memorySize(pod, v.EmptyDir, m.opts.NodeAllocatable))
}

// makeMemory makes a directory of a file system in memory, with at most size
// bytes if that is not zero, if this process may mount. Otherwise it is an
// ordinary one.
func (m *Manager) makeMemory(ctx context.Context, dir string, group *int64, size int64) error {
	if err := makeDirectory(dir, group); err != nil || m.opts.NoMounts {
		return err
	}
	if mounted, err := isMountPoint(dir); err != nil || mounted {
		return err
	}
	// Sticky, as what is in memory is on a kubelet: users leave each other's
	// files alone.
	options := []string{fmt.Sprintf("mode=%s", octal(directoryMode(group)|fs.ModeSticky))}
	if group != nil {
		options = append(options, fmt.Sprintf("gid=%d", *group))
	}
	if size > 0 {
		options = append(options, fmt.Sprintf("size=%d", size))
	}
	err := mountTmpfs(dir, options)
	if errors.Is(err, fs.ErrPermission) {
		m.warnOnce.Do(func() {
			log.G(ctx).WithError(err).Warn("volumes in memory, those of secrets too, are on disk: this process may not mount")
		})
		return nil
	}
	return err
}

// octal returns a mode as a number, as the kernel takes it.
func octal(mode fs.FileMode) string {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return fmt.Sprintf("%04o", bits)
}

// isMountPoint reports whether another file system is mounted on dir.
func isMountPoint(dir string) (bool, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return false, err
	}
	parent, err := os.Lstat(filepath.Dir(dir))
	return err == nil && deviceOf(info) != deviceOf(parent), err
}

// memorySize returns the size of an emptyDir in memory: the least of its own
// limit, the memory that all containers together may have (if all are
// limited) and that of the node. It is zero where there is no limit at all.
func memorySize(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource, node corev1.ResourceList) int64 {
	size := node.Memory().Value()
	atMost := func(limit int64) {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	if isMemoryLimited(pod) {
		limits := resource.PodLimits(pod, resource.PodResourcesOptions{})
		atMost(limits.Memory().Value())
	}
	if source.SizeLimit != nil {
		atMost(source.SizeLimit.Value())
	}
	return size
}

func isMemoryLimited(pod *corev1.Pod) bool {
	if r := pod.Spec.Resources; r != nil && !r.Limits.Memory().IsZero() {
		return true
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Resources.Limits.Memory().IsZero() {
				return false
			}
		}
	}
	return true
}
