package volume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
)

// EmptyDirUsage returns how many bytes the emptyDirs of a pod take, by name, as far
// as they are set up. The error names those that could not be measured; the others
// are there all the same.
func (m *Manager) EmptyDirUsage(ctx context.Context, pod *corev1.Pod) (map[string]int64, error) {
	usage := map[string]int64{}
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if Kind(v) != "emptyDir" {
			continue
		}
		dir, err := m.volumeDir(pod, v)
		if err == nil {
			usage[v.Name], err = Usage(ctx, dir)
		}
		errs = append(errs, err)
	}
	return usage, errors.Join(errs...)
}
