package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// localDir is where a pod's directory has one for each local volume that the pod has,
// named after the PersistentVolume, as a kubelet mounts it there.
const localDir = "kubernetes.io~local-volume"

// eventAlreadyMounted is the reason of a kubelet's event on a pod whose volume another pod has with another group.
const eventAlreadyMounted = "AlreadyMountedVolume"

// setUpLocal checks a local volume, and gives it to the pod's group, unless a pod has it
// already, that one or another: containers may have files in it that are not the group's.
func (m *Manager) setUpLocal(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, found place) error {
	done, err := m.locals.Take(ctx, found.persistentVolume)
	if err != nil {
		return err
	}
	defer done()
	file, err := openWithoutLinks(found.path)
	if err != nil {
		return fmt.Errorf("local volume: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("local volume: %w", err)
	}
	if !info.IsDir() {
		return unsupportedClaim(v, "local, not a directory")
	}
	podDir, err := m.podDir(pod.UID)
	if err != nil {
		return err
	}
	if !isElement(found.persistentVolume) {
		return permanentf("%q is no name of a persistentvolume", found.persistentVolume)
	}
	own := m.localMark(podDir, found.persistentVolume)
	if _, err := os.Lstat(own); err == nil {
		return nil
	}
	restored := false
	m.withState(pod.UID, func(s *state) { restored = s.restored })
	group := fsGroup(pod)
	switch {
	case restored || group == nil:
	case m.hasLocal(found.persistentVolume):
		if _, gid, known := ownerOf(info); known && gid != int(*group) && m.opts.Event != nil {
			m.opts.Event(pod, "", corev1.EventTypeWarning, eventAlreadyMounted, fmt.Sprintf("The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *group, found.persistentVolume, gid))
		}
	case !found.readOnly:
		if err := SetGroup(ctx, placeName(file), *group, pod.Spec.SecurityContext.FSGroupChangePolicy); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll(podDir, podMode), os.MkdirAll(own, innerMode))
}

// localMark is the directory that says that a pod has a local volume, since the machine was booted: as
// with a kubelet's mount, a pod gets the volume again after that, which may be another disk by then.
func (m *Manager) localMark(podDir, persistentVolume string) string {
	return filepath.Join(podDir, volumesDir, localDir, persistentVolume, m.opts.Boot)
}

// hasLocal reports whether any pod has a local volume.
func (m *Manager) hasLocal(persistentVolume string) bool {
	pods, _ := os.ReadDir(m.pods)
	return slices.ContainsFunc(pods, func(pod fs.DirEntry) bool {
		_, err := os.Lstat(m.localMark(filepath.Join(m.pods, pod.Name()), persistentVolume))
		return err == nil
	})
}
