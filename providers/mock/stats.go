package mock

import (
	"cmp"
	"context"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const (
	// What the node uses beside its pods.
	baseNanoCores   = 100_000_000
	baseMemoryBytes = 512 << 20
)

// usage is what a container uses. It does not change, so that its CPU time grows
// with time alone.
type usage struct{ nanoCores, memoryBytes uint64 }

// use returns the usage of a container: by chance (the same for a pod each
// time), from 1 to 50 milli cores and 8 to 64 MiB, but not more than its limits.
func (h *held) use(c *container) usage {
	random := hash(string(h.pod.uid), c.name)
	u := usage{
		nanoCores:   1_000_000 * (1 + random%50),
		memoryBytes: 8<<20 + random/50%(56<<20),
	}
	if limit := c.resources.Limits.Cpu(); !limit.IsZero() {
		u.nanoCores = min(u.nanoCores, uint64(max(limit.ScaledValue(resource.Nano), 1)))
	}
	if limit := c.resources.Limits.Memory(); !limit.IsZero() {
		u.memoryBytes = min(u.memoryBytes, uint64(max(limit.Value(), 1)))
	}
	return u
}

// each calls f for the containers that have a run like the pod's.
func (h *held) each(f func(*container)) {
	for i := range h.pod.containers {
		if c := &h.pod.containers[i]; c.kind == kindSidecar || c.kind == kindMain {
			f(c)
		}
	}
}

// cpu returns the core nanoseconds that the pod's containers use in d.
func (h *held) cpu(d time.Duration) (total uint64) {
	h.each(func(c *container) { total += cpuTime(h.use(c).nanoCores, d) })
	return total
}

func cpuTime(nanoCores uint64, d time.Duration) uint64 {
	return uint64(float64(nanoCores) * max(d, 0).Seconds())
}

// GetStatsSummary returns pseudo statistics: those of a container depend on its
// pod's UID and its name, and the node's are the sum. CPU times only grow.
func (p *Provider) GetStatsSummary(context.Context) (*stats.Summary, error) {
	now := time.Now()
	p.mu.RLock()
	defer p.mu.RUnlock()
	summary := &stats.Summary{Pods: make([]stats.PodStats, 0, len(p.pods))}
	total := usage{baseNanoCores, baseMemoryBytes}
	cpuNanos := cpuTime(baseNanoCores, now.Sub(p.started)) + p.pastCPU
	for _, h := range p.pods {
		if !h.current.running() {
			continue
		}
		pod, used, nanos := h.stats(now)
		total.nanoCores += used.nanoCores
		total.memoryBytes += used.memoryBytes
		cpuNanos += nanos
		summary.Pods = append(summary.Pods, pod)
	}
	at := metav1.NewTime(now)
	memory := uint64(p.cfg.Memory.Value())
	disk := uint64(p.cfg.EphemeralStorage.Value())
	summary.Node = stats.NodeStats{
		NodeName:  p.cfg.NodeName,
		StartTime: metav1.NewTime(p.started),
		CPU:       cpuStats(at, total.nanoCores, cpuNanos),
		Memory:    memoryStats(at, total.memoryBytes, memory),
		Fs: &stats.FsStats{
			Time: at, CapacityBytes: &disk, AvailableBytes: ptr.To(disk - disk/10), UsedBytes: ptr.To(disk / 10),
		},
	}
	sortPodStats(summary.Pods)
	return summary, nil
}

func (h *held) stats(now time.Time) (stats.PodStats, usage, uint64) {
	at, age := metav1.NewTime(now), now.Sub(h.current.started)
	pod := stats.PodStats{
		PodRef:    stats.PodReference{Name: h.pod.name, Namespace: h.pod.namespace, UID: string(h.pod.uid)},
		StartTime: metav1.NewTime(h.created),
	}
	var total usage
	var nanos uint64
	h.each(func(c *container) {
		used := h.use(c)
		total.nanoCores += used.nanoCores
		total.memoryBytes += used.memoryBytes
		nanos += cpuTime(used.nanoCores, age)
		pod.Containers = append(pod.Containers, stats.ContainerStats{
			Name:      c.name,
			StartTime: metav1.NewTime(h.current.started),
			CPU:       cpuStats(at, used.nanoCores, cpuTime(used.nanoCores, age)),
			Memory:    memoryStats(at, used.memoryBytes, uint64(c.resources.Limits.Memory().Value())),
		})
	})
	pod.CPU = cpuStats(at, total.nanoCores, nanos)
	pod.Memory = memoryStats(at, total.memoryBytes, 0)
	return pod, total, nanos
}

func cpuStats(at metav1.Time, nanoCores, nanos uint64) *stats.CPUStats {
	return &stats.CPUStats{Time: at, UsageNanoCores: &nanoCores, UsageCoreNanoSeconds: &nanos}
}

// memoryStats has what is available only where there is a limit.
func memoryStats(at metav1.Time, used, limit uint64) *stats.MemoryStats {
	s := &stats.MemoryStats{Time: at, UsageBytes: &used, WorkingSetBytes: &used, RSSBytes: &used}
	if limit > used {
		s.AvailableBytes = ptr.To(limit - used)
	}
	return s
}

// GetMetricsResource returns the same figures as metrics-server wants them.
func (p *Provider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
	summary, err := p.GetStatsSummary(ctx)
	return api.ResourceMetricsFromSummary(summary), err
}

func sortPodStats(pods []stats.PodStats) {
	slices.SortFunc(pods, func(a, b stats.PodStats) int {
		return cmp.Or(cmp.Compare(a.PodRef.Namespace, b.PodRef.Namespace), cmp.Compare(a.PodRef.Name, b.PodRef.Name))
	})
}
