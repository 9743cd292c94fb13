package podengine

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// fileSystems are those of the machine, as statistics have them. What is not known is
// nil.
type fileSystems struct {
	node, images *statsv1alpha1.FsStats
	runtime      *statsv1alpha1.RuntimeStats
	processes    *statsv1alpha1.RlimitStats
}

// fileSystems observes the machine.
func (e *Engine) fileSystems(ctx context.Context) (fs fileSystems) {
	if e.cfg.Eviction.Levels == nil {
		return fs
	}
	levels, err := e.cfg.Eviction.Levels(ctx)
	if err != nil {
		log.G(ctx).WithError(err).Debug("Statistics lack the file systems")
		return fs
	}
	now := metav1.Now()
	bytes, inodes := levels[eviction.NodeFsAvailable], levels[eviction.NodeFsInodesFree]
	if fs.node = fsStats(now, bytes, inodes); fs.node != nil {
		fs.node = withUse(fs.node, volume.Used{Bytes: bytes.Capacity - bytes.Available, Inodes: inodes.Capacity - inodes.Available})
	}
	if fs.images = fsStats(now, levels[eviction.ImageFsAvailable], levels[eviction.ImageFsInodesFree]); fs.images != nil {
		fs.runtime = e.runtimeFileSystems(ctx, fs.images)
	}
	if pids, ok := levels[eviction.PIDAvailable]; ok {
		fs.processes = &statsv1alpha1.RlimitStats{Time: now, MaxPID: ptr.To(pids.Capacity), NumOfRunningProcesses: ptr.To(pids.Capacity - pids.Available)}
	}
	return fs
}

// runtimeFileSystems asks the runtime what images and writable layers take of their
// file system; nil if it does not say.
func (e *Engine) runtimeFileSystems(ctx context.Context, images *statsv1alpha1.FsStats) *statsv1alpha1.RuntimeStats {
	info, err := e.cfg.Images.ImageFsInfo(ctx)
	if err != nil || len(info.GetImageFilesystems()) == 0 {
		return nil
	}
	of := func(list []*runtimeapi.FilesystemUsage) *statsv1alpha1.FsStats {
		return withUse(images, volume.Used{Bytes: int64(list[0].GetUsedBytes().GetValue()), Inodes: int64(list[0].GetInodesUsed().GetValue())})
	}
	s := &statsv1alpha1.RuntimeStats{ImageFs: of(info.ImageFilesystems)}
	s.ContainerFs = s.ImageFs
	if len(info.GetContainerFilesystems()) > 0 {
		s.ContainerFs = of(info.ContainerFilesystems)
	}
	return s
}

// fsStats says how much there is of a file system; nil if that is not known.
func fsStats(at metav1.Time, bytes, inodes eviction.Level) *statsv1alpha1.FsStats {
	if bytes.Capacity <= 0 {
		return nil
	}
	s := &statsv1alpha1.FsStats{Time: at, AvailableBytes: unsigned(bytes.Available), CapacityBytes: unsigned(bytes.Capacity)}
	if inodes.Capacity > 0 {
		s.InodesFree, s.Inodes = unsigned(inodes.Available), unsigned(inodes.Capacity)
	}
	return s
}

func unsigned(n int64) *uint64 { return ptr.To(uint64(max(n, 0))) }

// withUse is what is used of a file system, which may be nil.
func withUse(fs *statsv1alpha1.FsStats, used volume.Used) *statsv1alpha1.FsStats {
	s := ptr.To(ptr.Deref(fs, statsv1alpha1.FsStats{Time: metav1.Now()}))
	s.UsedBytes, s.InodesUsed = unsigned(used.Bytes), unsigned(used.Inodes)
	return s
}

// addDiskUse adds to a pod's statistics what it uses of the node's storage.
func (fs fileSystems) addDiskUse(s *statsv1alpha1.PodStats, pod *corev1.Pod, disk diskUse) {
	total := sumOf(disk.other)
	add := func(used volume.Used) {
		total.Bytes += used.Bytes
		total.Inodes += used.Inodes
	}
	at := metav1.NewTime(disk.at)
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.Rootfs != nil {
			add(volume.Used{Bytes: int64(ptr.Deref(c.Rootfs.UsedBytes, 0)), Inodes: int64(ptr.Deref(c.Rootfs.InodesUsed, 0))})
		}
		if used, ok := disk.logs[c.Name]; ok {
			c.Logs = withUse(fs.node, used)
			c.Logs.Time = at
			add(used)
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		used, ok := disk.volumes[v.Name]
		if !ok {
			continue
		}
		of := fs.node
		if v.EmptyDir.Medium == corev1.StorageMediumMemory {
			of = nil // it is a file system of its own
		} else {
			add(used)
		}
		stats := withUse(of, used)
		stats.Time = at
		s.VolumeStats = append(s.VolumeStats, statsv1alpha1.VolumeStats{FsStats: *stats, Name: v.Name})
	}
	slices.SortFunc(s.VolumeStats, func(a, b statsv1alpha1.VolumeStats) int { return strings.Compare(a.Name, b.Name) })
	s.EphemeralStorage = withUse(fs.node, total)
	s.EphemeralStorage.Time = at
}

// addCapacity adds to the writable layers of a pod's containers how much there is of
// their file system.
func (fs fileSystems) addCapacity(s *statsv1alpha1.PodStats) {
	if fs.images == nil {
		return
	}
	for i := range s.Containers {
		if root := s.Containers[i].Rootfs; root != nil {
			root.AvailableBytes, root.CapacityBytes = fs.images.AvailableBytes, fs.images.CapacityBytes
			root.InodesFree, root.Inodes = fs.images.InodesFree, fs.images.Inodes
		}
	}
}
