package volume

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// HostPath returns what a container is to have at a mount of its: the path on
// the host, without links, and whether it may write there. The volume has been
// set up by Prepare. If subPathExpr is given, its references have been expanded.
//
// A subPath that does not exist becomes a directory. One that leads out of the
// volume, by links too, is an error. Where the process may mount (see
// Options.NoMounts) the path of a subPath is a mount of its own that containers
// cannot change to lead elsewhere; it is to be asked for again for each start of
// a container.
func (m *Manager) HostPath(pod *corev1.Pod, mount *corev1.VolumeMount) (path string, readOnly bool, err error) {
	v := findVolume(pod, mount.Name)
	if v == nil {
		return "", false, permanentf("volumeMount %q: the pod has no such volume", mount.Name)
	}
	found, err := m.placeOf(pod, v)
	if err != nil {
		return "", false, fmt.Errorf("volumeMount %q: %w", mount.Name, err)
	}
	subPath, rel := cmp.Or(mount.SubPathExpr, mount.SubPath), "."
	if subPath != "" {
		if rel, err = locate(found.path, subPath); err != nil {
			return "", false, fmt.Errorf("failed to prepare subPath for volumeMount %q: %w", mount.Name, err)
		}
	}
	access := HostAccess{Pod: pod, Volume: v.Name, Path: found.path, PersistentVolume: found.persistentVolume}
	switch {
	case rel != ".":
		if found.path, err = m.subPath(access, found.host, mount, rel); err != nil {
			return "", false, fmt.Errorf("failed to prepare subPath for volumeMount %q: %w", mount.Name, err)
		}
	case found.host: // of a subPath that is all of the volume, too
		if found.path, err = m.pinHostPath(access, mount); err != nil {
			return "", false, fmt.Errorf("volumeMount %q: %w", mount.Name, err)
		}
	}
	return found.path, found.readOnly || mount.ReadOnly, nil
}

// Relabel reports whether the files at a mount of a container may be given the SELinux label
// of the container, as a kubelet has it: those of the pod, and of a local volume that is
// not read-only, but none that are the host's own. The volume has been set up by Prepare.
func (m *Manager) Relabel(pod *corev1.Pod, mount *corev1.VolumeMount) (relabel bool) {
	v := findVolume(pod, mount.Name)
	if v == nil {
		return false
	}
	if v.PersistentVolumeClaim == nil {
		return plugins[Kind(v)] != ""
	}
	m.withState(pod.UID, func(s *state) {
		found := s.places[v.Name]
		relabel = found.local && !found.readOnly
	})
	return relabel
}

// Image returns the reference of the image that a container is to have at a
// mount, for the runtime to mount, if it is of an image volume that has been
// prepared.
func (m *Manager) Image(pod *corev1.Pod, mount *corev1.VolumeMount) (ref string, ok bool) {
	m.withState(pod.UID, func(s *state) { ref, ok = s.images[mount.Name] })
	return ref, ok
}

func findVolume(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

var errNotSetUp = errors.New("the volume is not set up: Prepare comes first")

// placeOf returns where a volume is.
func (m *Manager) placeOf(pod *corev1.Pod, v *corev1.Volume) (place, error) {
	switch {
	case v.HostPath != nil:
		path, err := m.resolveHostPath(HostAccess{Pod: pod, Volume: v.Name, Path: v.HostPath.Path})
		return place{path: path, host: true}, err
	case v.PersistentVolumeClaim != nil:
		found, ok := place{}, false
		m.withState(pod.UID, func(s *state) { found, ok = s.places[v.Name] })
		if !ok {
			return place{}, errNotSetUp
		}
		return found, nil
	}
	dir, err := m.volumeDir(pod, v)
	if err != nil {
		return place{}, fmt.Errorf("kind %s: %w", Kind(v), err)
	}
	if _, err := os.Lstat(dir); err != nil {
		return place{}, errNotSetUp
	}
	return place{path: dir, readOnly: HasContents(v)}, nil
}

// subPath returns the path of what is at rel, without links, in a volume; the subPath of the mount
// led there. A volume of the host may be changed by other pods at any time, so that its
// path alone will not do, other than as for pinHostPath.
func (m *Manager) subPath(volume HostAccess, host bool, mount *corev1.VolumeMount, rel string) (string, error) {
	file, err := openBeneath(volume.Path, rel)
	if err != nil {
		return "", err
	}
	defer file.Close()
	plain := filepath.Join(volume.Path, filepath.FromSlash(rel))
	plainWillDo := !host || m.opts.NoLinksFollowed || m.allows(volume, "/")
	if m.opts.NoMounts {
		if !plainWillDo {
			return "", permanentf("pods may change hostPath %q, and this process makes no mounts: mount all of the volume, or let it mount", volume.Path)
		}
		return plain, nil
	}
	what, bind := cmp.Or(mount.SubPathExpr, mount.SubPath), bindMount
	switch {
	case host && !showsOnHost(mount):
		bind = bindSlave
	case host:
		what = "shared:" + what // not the mount of a container whose mounts do not show
	}
	target, err := m.bindPinned(volume.Pod, volume.Volume, what, file, bind)
	if plainWillDo && errors.Is(err, os.ErrPermission) {
		return plain, nil
	}
	return target, err
}
