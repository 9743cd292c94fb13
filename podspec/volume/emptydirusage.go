package volume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
)

// Used is what something takes of its file system.
type Used struct{ Bytes, Inodes int64 }

// Measure returns what a directory takes of its file system with all that is in it, or
// a file. Links are not followed, other file systems below it are left out, and a
// file with several names counts once. What containers move meanwhile leads nowhere
// else, and it ends with ctx. A directory that does not exist takes nothing. With an
// error, the result is what was counted so far.
func Measure(ctx context.Context, dir string) (Used, error) {
	used, err := filetree.Measure(ctx, dir)
	return Used(used), err
}

// Usage returns how many bytes of its file system a directory takes: see Measure.
func Usage(ctx context.Context, dir string) (bytes int64, err error) {
	used, err := Measure(ctx, dir)
	return used.Bytes, err
}

// MeasureEmptyDirs returns what the emptyDirs of a pod take, by name, as far as they
// are set up. The error names those that could not be measured; the others are there
// all the same.
func (m *Manager) MeasureEmptyDirs(ctx context.Context, pod *corev1.Pod) (map[string]Used, error) {
	used := map[string]Used{}
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if Kind(v) != "emptyDir" {
			continue
		}
		dir, err := m.volumeDir(pod, v)
		if err == nil {
			used[v.Name], err = Measure(ctx, dir)
		}
		errs = append(errs, err)
	}
	return used, errors.Join(errs...)
}

// EmptyDirUsage is MeasureEmptyDirs without inodes.
func (m *Manager) EmptyDirUsage(ctx context.Context, pod *corev1.Pod) (map[string]int64, error) {
	used, err := m.MeasureEmptyDirs(ctx, pod)
	bytes := make(map[string]int64, len(used))
	for name, u := range used {
		bytes[name] = u.Bytes
	}
	return bytes, err
}
