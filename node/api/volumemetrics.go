package api

import (
	"slices"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// VolumeMetricsFromSummary makes the kubelet's metrics of volumes
// (kubelet_volume_stats_*) from a Summary: names, help texts and labels are the
// kubelet's, sorted by labels. Only volumes of a PersistentVolumeClaim count, and
// each claim once, however many pods share it. Figures that the Summary lacks are
// left out, and so are families without any.
func VolumeMetricsFromSummary(summary *stats.Summary) []*dto.MetricFamily {
	if summary == nil {
		return nil
	}
	gauge := func(name, help string) *dto.MetricFamily {
		return family("kubelet_volume_stats_"+name, dto.MetricType_GAUGE, "[ALPHA] "+help)
	}
	capacity := gauge("capacity_bytes", "Capacity in bytes of the volume")
	available := gauge("available_bytes", "Number of available bytes in the volume")
	used := gauge("used_bytes", "Number of used bytes in the volume")
	inodes := gauge("inodes", "Maximum number of inodes in the volume")
	inodesFree := gauge("inodes_free", "Number of free inodes in the volume")
	inodesUsed := gauge("inodes_used", "Number of used inodes in the volume")
	abnormal := gauge("health_status_abnormal", "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy")

	seen := map[stats.PVCReference]bool{}
	for _, pod := range summary.Pods {
		for _, volume := range pod.VolumeStats {
			if volume.PVCRef == nil || seen[*volume.PVCRef] {
				continue
			}
			seen[*volume.PVCRef] = true
			labels := []string{"namespace", volume.PVCRef.Namespace, "persistentvolumeclaim", volume.PVCRef.Name}
			addBytes(capacity, volume.CapacityBytes, metav1.Time{}, labels)
			addBytes(available, volume.AvailableBytes, metav1.Time{}, labels)
			addBytes(used, volume.UsedBytes, metav1.Time{}, labels)
			addBytes(inodes, volume.Inodes, metav1.Time{}, labels)
			addBytes(inodesFree, volume.InodesFree, metav1.Time{}, labels)
			addBytes(inodesUsed, volume.InodesUsed, metav1.Time{}, labels)
			if health := volume.VolumeHealthStats; health != nil {
				value := 0.0
				if health.Abnormal {
					value = 1
				}
				add(abnormal, value, metav1.Time{}, labels...)
			}
		}
	}
	families := []*dto.MetricFamily{available, capacity, abnormal, inodes, inodesFree, inodesUsed, used}
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
	for _, f := range families {
		slices.SortStableFunc(f.Metric, byLabels)
	}
	return families
}
