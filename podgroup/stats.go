package podgroup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// usageMaxAge is how old figures may be that answer another call.
const usageMaxAge = 15 * time.Second

// maxUsageCalls is how many calls for figures are made at a time.
const maxUsageCalls = 8

// usage caches what pods use.
type usage struct {
	mu      sync.Mutex // held during the calls, so that concurrent callers share them
	at      time.Time
	ids     []string // of the units in the summary, sorted
	summary *stats.Summary
	cpu     map[types.UID]uint64 // nanoseconds that each pod had used when it last had figures
}

// GetStatsSummary implements nodeutil.Provider. The node's figures are the sum of the pods'.
func (p *Provider) GetStatsSummary(ctx context.Context) (*stats.Summary, error) {
	meter, ok := p.backend.(Meter)
	if !ok {
		return nil, p.unsupported("figures of what pods use")
	}
	p.usage.mu.Lock()
	defer p.usage.mu.Unlock()
	all, err := p.units.all(ctx)
	if err != nil {
		return nil, err
	}
	var running []*Unit
	var ids []string
	for _, found := range all {
		if found.Phase == Running || found.Phase == Updating {
			running = append(running, &found)
			ids = append(ids, found.ID)
		}
	}
	slices.Sort(ids)
	if p.usage.summary != nil && time.Since(p.usage.at) < usageMaxAge && slices.Equal(ids, p.usage.ids) {
		return p.usage.summary, nil
	}
	now := metav1.Now()
	summary := &stats.Summary{Node: stats.NodeStats{NodeName: p.init.Node.Name, StartTime: timeOf(p.events.since)}}
	if len(running) > 0 {
		if summary.Pods, err = p.measure(ctx, meter, running); err != nil {
			return nil, err
		}
	}
	sumPods(summary, now)
	p.usage.addMissing(summary, running)
	p.usage.summary, p.usage.at, p.usage.ids = summary, now.Time, ids
	return summary, nil
}

// addMissing adds to the CPU time of the node what pods without figures had used when they
// last had some: it must not fall, and then jump, when a batch fails once.
func (u *usage) addMissing(summary *stats.Summary, running []*Unit) {
	latest := make(map[types.UID]uint64, len(running))
	for _, pod := range summary.Pods {
		if pod.CPU != nil && pod.CPU.UsageCoreNanoSeconds != nil {
			latest[types.UID(pod.PodRef.UID)] = *pod.CPU.UsageCoreNanoSeconds
		}
	}
	for _, unit := range running {
		used, known := u.cpu[unit.Owner.UID]
		if _, measured := latest[unit.Owner.UID]; known && !measured {
			latest[unit.Owner.UID] = used
			if cpu := summary.Node.CPU; cpu != nil {
				*cpu.UsageCoreNanoSeconds += used
			}
		}
	}
	u.cpu = latest
}

// measure returns the figures of units, in batches. If a batch fails its units are without
// figures; only if all fail there is an error. Clients wait for ten seconds, in which one batch
// after the other does not come to its end where there are many.
func (p *Provider) measure(ctx context.Context, meter Meter, running []*Unit) (pods []stats.PodStats, err error) {
	batches := slices.Collect(slices.Chunk(running, cmp.Or(p.opts.UsageBatch, len(running))))
	found, errs := make([][]stats.PodStats, len(batches)), make([]error, len(batches))
	var group errgroup.Group
	group.SetLimit(maxUsageCalls)
	for i, units := range batches {
		group.Go(func() error {
			found[i], errs[i] = p.measureBatch(ctx, meter, units)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
	case len(batches):
		return nil, errs[0]
	default:
		log.G(ctx).WithError(errs[0]).WithField("failed", len(errs)).WithField("calls", len(batches)).Warn("Cannot get the figures of some pods")
	}
	return slices.Concat(found...), nil
}

func (p *Provider) measureBatch(ctx context.Context, meter Meter, running []*Unit) (pods []stats.PodStats, err error) {
	err = p.calls.do(ctx, ActionUsage, func(ctx context.Context) (err error) {
		pods, err = meter.Usage(ctx, running)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(pods) != len(running) {
		return nil, fmt.Errorf("the backend returned figures of %d units when asked for %d", len(pods), len(running))
	}
	for i, u := range running {
		pods[i].PodRef = stats.PodReference{Namespace: u.Owner.Namespace, Name: u.Owner.Name, UID: string(u.Owner.UID)}
		pods[i].StartTime = timeOf(u.Created)
		for j := range pods[i].Containers {
			c := &pods[i].Containers[j]
			if found := u.Container(c.Name); found != nil && c.StartTime.IsZero() {
				c.StartTime = timeOf(found.Now.Started)
			}
		}
	}
	return slices.DeleteFunc(pods, func(pod stats.PodStats) bool { return pod.CPU == nil && pod.Memory == nil }), nil
}

// GetMetricsResource implements nodeutil.Provider.
func (p *Provider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
	summary, err := p.GetStatsSummary(ctx)
	if err != nil {
		return nil, err
	}
	return api.ResourceMetricsFromSummary(summary), nil
}

// sumPods sets the figures of the node to the sum of its pods'.
func sumPods(summary *stats.Summary, at metav1.Time) {
	cpu, memory := &stats.CPUStats{Time: at, UsageNanoCores: new(uint64), UsageCoreNanoSeconds: new(uint64)}, &stats.MemoryStats{Time: at, UsageBytes: new(uint64), WorkingSetBytes: new(uint64)}
	add := func(to, from *uint64) {
		if from != nil {
			*to += *from
		}
	}
	for i := range summary.Pods {
		if c := summary.Pods[i].CPU; c != nil {
			add(cpu.UsageNanoCores, c.UsageNanoCores)
			add(cpu.UsageCoreNanoSeconds, c.UsageCoreNanoSeconds)
		}
		if m := summary.Pods[i].Memory; m != nil {
			add(memory.UsageBytes, m.UsageBytes)
			add(memory.WorkingSetBytes, m.WorkingSetBytes)
		}
	}
	summary.Node.Memory = memory
	if len(summary.Pods) == 0 || slices.ContainsFunc(summary.Pods, func(pod stats.PodStats) bool { return pod.CPU != nil }) {
		summary.Node.CPU = cpu // else the service does not say it, and it is not zero
	}
}
