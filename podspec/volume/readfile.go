package volume

import (
	"fmt"
	"io"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// maxFile is how large a file may be that ReadFile reads, in bytes.
const maxFile = 1 << 20

// ReadFile reads a file of at most 1 MiB in an emptyDir of pod that Prepare has set
// up, as an environment variable from a file does (fileKeyRef). Links must not lead
// out of the volume, and what is no regular file is an error: containers of the pod
// wrote it. One that does not exist is fs.ErrNotExist.
func (m *Manager) ReadFile(pod *corev1.Pod, volume, path string) ([]byte, error) {
	v := findVolume(pod, volume)
	if v == nil || Kind(v) != "emptyDir" {
		return nil, fmt.Errorf("the pod has no emptyDir named %q", volume)
	}
	if !filepath.IsLocal(path) {
		return nil, fmt.Errorf("path %q must be relative and have no '..'", path)
	}
	found, err := m.placeOf(pod, v)
	if err != nil {
		return nil, err
	}
	file, err := openRegular(found.path, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return content, err
}
