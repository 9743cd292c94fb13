package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
)

// ownDirs are the directories of a pod that are the Manager's, in the order of
// removal: subPaths are mounts of what is in volumes.
var ownDirs = []string{subPathsDir, volumesDir}

// Teardown unmounts and removes the volumes of a pod, and its directory if
// nothing else is in it; what is on other file systems stays. It needs no
// memory of the pod, and may be repeated. No container of the pod should run.
func (m *Manager) Teardown(uid types.UID) error {
	dir, err := m.podDir(uid)
	if err != nil {
		return err
	}
	m.forget(uid)
	for _, own := range ownDirs {
		if err := removeAll(dir, own); err != nil {
			return fmt.Errorf("remove the volumes of pod %s: %w", uid, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("remove the directory of pod %s: %w", uid, err)
	}
	return nil
}

// Orphans returns the pods that have volumes on disk, whether or not the node
// still has them: those it has not are to be torn down.
func (m *Manager) Orphans() []types.UID {
	var uids []types.UID
	pods, _ := os.ReadDir(m.pods)
	for _, pod := range pods {
		if m.hasVolumes(pod.Name()) {
			uids = append(uids, types.UID(pod.Name()))
		}
	}
	return uids
}

func (m *Manager) hasVolumes(pod string) bool {
	return slices.ContainsFunc(ownDirs, func(own string) bool {
		_, err := os.Lstat(filepath.Join(m.pods, pod, own))
		return err == nil
	})
}

// removeAll removes a directory of a pod, once nothing is mounted below it.
func removeAll(podDir, name string) error {
	if err := unmountBelow(filepath.Join(podDir, name), unmount); err != nil {
		return err
	}
	return filetree.Remove(podDir, name)
}

// unmountBelow unmounts all below dir, the latest first. It is an error if
// anything is left: what is mounted there is not ours to delete.
func unmountBelow(dir string, unmount func(string) (bool, error)) error {
	points, err := mountPoints(dir)
	if err != nil {
		return err
	}
	if err := makeSlaves(points); err != nil {
		return err
	}
	slices.Reverse(points)
	for _, point := range points {
		if _, err := unmount(point); err != nil {
			return err
		}
	}
	if len(points) == 0 {
		return nil
	}
	if points, err = mountPoints(dir); err == nil && len(points) > 0 {
		err = fmt.Errorf("%s is still mounted: unmount it, nothing is removed before", points[0])
	}
	return err
}

// makeSlaves makes those mounts slaves that others of them are below: what is mounted there may be the host's.
func makeSlaves(points []string) error {
	sorted := make([]string, len(points))
	for i, point := range points {
		sorted[i] = point + "/"
	}
	slices.Sort(sorted)
	for len(sorted) > 0 {
		outer, below := sorted[0], 1
		for below < len(sorted) && strings.HasPrefix(sorted[below], outer) {
			below++
		}
		if below > 1 {
			if err := makeSlave(strings.TrimSuffix(outer, "/")); err != nil {
				return err
			}
		}
		sorted = sorted[below:]
	}
	return nil
}
