package zun

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// figures are Zun's of a container, made by its driver for Docker. Its percentage of CPU is the
// time of the container in that of all CPUs of the host since the host has started; these are
// not shown, so that no CPU time can be made of it.
type figures struct {
	Memory  float64 `json:"MEM USAGE(MiB)"` // with the cache of files, by version only with its active part
	Network string  `json:"NET I/O(B)"`     // of the capsule, received and sent; 0/0 also where nothing counts it
}

// Usage implements podgroup.Meter, for one unit: see Options.UsageBatch. Docker takes more than a
// second for each container.
func (b *backend) Usage(ctx context.Context, units []*podgroup.Unit) ([]stats.PodStats, error) {
	u, found := units[0], make([]figures, len(units[0].Containers))
	group, inGroup := errgroup.WithContext(ctx)
	for i, c := range u.Containers {
		if c.Now.State == podgroup.Executing { // Zun refuses others
			group.Go(func() error {
				if err := b.get(inGroup, podgroup.ActionUsage, containerPath(u, c.Name, "stats", nil), &found[i]); !errdefs.IsConflict(err) {
					return err
				}
				return nil // it has ended since, or is paused
			})
		}
	}
	err := group.Wait()
	if errdefs.IsNotFound(err) {
		if gone := b.get(ctx, actionShow, "capsules/"+u.ID, &capsule{}); errdefs.IsNotFound(gone) {
			return make([]stats.PodStats, 1), nil
		}
		err = podgroup.Throttled(hidden(err), 10*time.Minute) // to ask each time would be in vain
	}
	return []stats.PodStats{podStats(u, found, metav1.Now())}, err
}

// podStats has what Zun shows as the working set, too, since it does not say how much of the cache of files is in it.
func podStats(u *podgroup.Unit, found []figures, at metav1.Time) (pod stats.PodStats) {
	memory := func(bytes uint64) *stats.MemoryStats {
		return &stats.MemoryStats{Time: at, UsageBytes: &bytes, WorkingSetBytes: &bytes}
	}
	total := uint64(0)
	for i, f := range found {
		if used := uint64(f.Memory*(1<<20) + 0.5); used > 0 {
			total += used
			pod.Containers = append(pod.Containers, stats.ContainerStats{Name: u.Containers[i].Name, Memory: memory(used)})
			pod.Memory = memory(total)
		}
		var received, sent uint64
		if n, _ := fmt.Sscanf(f.Network, "%d/%d", &received, &sent); n == 2 && received+sent > 0 {
			pod.Network = &stats.NetworkStats{Time: at, InterfaceStats: stats.InterfaceStats{Name: "all", RxBytes: &received, TxBytes: &sent}}
		}
	}
	return pod
}
