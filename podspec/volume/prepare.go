package volume

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// podMode keeps all but root, and this process, out of a pod's directory. It
	// is not applied to one that somebody else made.
	podMode fs.FileMode = 0o750
	// innerMode lets containers of any user pass who are let in so far.
	innerMode fs.FileMode = 0o755

	volumesDir  = "volumes"
	subPathsDir = "volume-subpaths"

	// Contents are refreshed at least this often, give or take a part, so that
	// pods that began together are not refreshed together.
	refreshPeriod = time.Minute
	refreshJitter = refreshPeriod / 5
)

// Prepare sets up the volumes that the containers of pod mount, as far as they
// are not. It is to be called before a container starts, and may be called at any
// time, after a restart of the process too: what is there stays.
//
// It tries each volume; the error is of type Failures and names those that could
// not be set up. Unless it is permanent (errdefs.IsPermanent), another call may
// succeed: when an object appears that was missing, which Subscribe reports,
// or some time later.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	_, err := m.setUp(ctx, pod, func(*corev1.Volume) bool { return true })
	return err
}

// Restore is Prepare for a pod that has had its volumes since the machine was booted, by an earlier process:
// it has a sandbox. Its local volumes stay as its containers left them, though that process, of an earlier version, did not
// record that the pod has them.
func (m *Manager) Restore(ctx context.Context, pod *corev1.Pod) error {
	m.recordReferences(pod)
	set := func(restored bool) { m.withState(pod.UID, func(s *state) { s.restored = restored }) }
	set(true)
	defer set(false)
	return m.Prepare(ctx, pod)
}

// PrepareMore is Prepare for some volumes of a pod alone, by their names: those that an
// ephemeral container is the first to mount. The others are there, and in use.
func (m *Manager) PrepareMore(ctx context.Context, pod *corev1.Pod, volumes []string) error {
	before := m.Due(pod.UID)
	due, err := m.setUp(ctx, pod, func(v *corev1.Volume) bool { return slices.Contains(volumes, v.Name) })
	m.withState(pod.UID, func(s *state) { s.due = earliest(due, before) })
	return err
}

// Refresh rewrites what has changed in the volumes of pod: ConfigMaps and
// Secrets, labels and annotations, and tokens that are due for renewal. It is to
// be called when the pod has changed, when Subscribe says so, and at the time
// that it returns; that is zero if nothing in the pod's volumes can change.
//
// The error is as that of Prepare. Contents that could not be read stay as
// they are.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) (next time.Time, err error) {
	return m.setUp(ctx, pod, HasContents)
}

// Due returns when Refresh is to be called for a pod, as the last Prepare or
// Refresh found out; zero is never.
func (m *Manager) Due(uid types.UID) (due time.Time) {
	m.withState(uid, func(s *state) { due = s.due })
	return due
}

func (m *Manager) setUp(ctx context.Context, pod *corev1.Pod, which func(*corev1.Volume) bool) (due time.Time, err error) {
	m.recordReferences(pod)
	var failures Failures
	for _, v := range mounted(pod) {
		if HasContents(v) {
			due = earliest(due, nextPeriod())
		}
		if !which(v) {
			continue
		}
		renew, err := m.setUpVolume(ctx, pod, v)
		due = earliest(due, renew)
		if err != nil {
			failures = append(failures, &SetUpError{v.Name, err})
		}
	}
	m.withState(pod.UID, func(s *state) { s.due = due })
	return due, failures.err()
}

func nextPeriod() time.Time {
	return time.Now().Add(refreshPeriod - refreshJitter + rand.N(2*refreshJitter))
}

func (m *Manager) setUpVolume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (renew time.Time, err error) {
	switch {
	case HasContents(v):
		return m.setUpContents(ctx, pod, v)
	case v.HostPath != nil:
		path, err := m.resolveHostPath(HostAccess{Pod: pod, Volume: v.Name, Path: v.HostPath.Path})
		if err == nil {
			err = checkHostPath(path, v.HostPath.Type)
		}
		return renew, err
	case v.PersistentVolumeClaim != nil && m.opts.Claims != nil:
		found, err := m.claimed(ctx, pod, v)
		if err == nil {
			m.withState(pod.UID, func(s *state) { s.places[v.Name] = found })
		}
		return renew, err
	case v.Image != nil && m.opts.Images != nil:
		ref, err := m.opts.Images.Image(ctx, pod, v)
		if err == nil {
			m.withState(pod.UID, func(s *state) { s.images[v.Name] = ref })
		}
		return renew, err
	case Kind(v) == "emptyDir":
		dir, err := m.makeParents(pod, v)
		if err == nil {
			err = m.setUpEmptyDir(ctx, pod, v, dir)
		}
		return renew, err
	}
	return renew, errdefs.AsPermanent(Unsupported{v.Name, Kind(v)})
}

// setUpContents writes the contents of a volume if they have changed. The
// volume's directory is made first: it outlives what is in it.
func (m *Manager) setUpContents(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (renew time.Time, err error) {
	source := m.opts.Contents
	if source == nil {
		source = Sources{Objects: m.opts.Objects, Tokens: m.tokens, NodeAllocatable: m.opts.NodeAllocatable}
	}
	files, renew, err := source.Contents(ctx, pod, v)
	if err != nil {
		return renew, err
	}
	dir, err := m.makeParents(pod, v)
	if err != nil {
		return renew, err
	}
	if v.ConfigMap != nil {
		err = makeDirectory(dir, fsGroup(pod))
	} else { // secrets are never written to disk, as far as that is in our power
		err = m.makeMemory(ctx, dir, fsGroup(pod), 0)
	}
	if err == nil {
		_, err = Write(dir, files, fsGroup(pod))
	}
	return renew, err
}

// makeParents makes what is above the directory of a volume, which it returns.
func (m *Manager) makeParents(pod *corev1.Pod, v *corev1.Volume) (string, error) {
	dir, err := m.volumeDir(pod, v)
	if err != nil {
		return "", err
	}
	podDir, err := m.podDir(pod.UID)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(podDir, podMode); err != nil {
		return "", err
	}
	return dir, os.MkdirAll(filepath.Dir(dir), innerMode)
}
