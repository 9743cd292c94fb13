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
	"k8s.io/apimachinery/pkg/util/sets"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/cputime"
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
	times   cputime.Times
}

// GetStatsSummary implements nodeutil.Provider. The node's figures are the sum of the
// pods', and its CPU time what they have used since they were first read: it does not fall.
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
	setTimes(summary.Pods, metav1.Now())
	missing := withoutCPU(summary.Pods, running)
	p.usage.addTimes(summary.Pods, missing)
	summary.Node.Memory = sumMemory(summary.Pods, now)
	cpu := p.usage.times.OfNode(summary.Pods, missing)
	if len(summary.Pods) == 0 || slices.ContainsFunc(summary.Pods, func(pod stats.PodStats) bool { return pod.CPU != nil }) {
		summary.Node.CPU = cpu // else the service does not say it, and it is not zero
	}
	p.usage.summary, p.usage.at, p.usage.ids = summary, now.Time, ids
	return summary, nil
}

// setTimes gives the time now to figures of CPU and memory without one, in copies.
func setTimes(pods []stats.PodStats, now metav1.Time) {
	set := func(cpu **stats.CPUStats, memory **stats.MemoryStats) {
		if c := *cpu; c != nil && c.Time.IsZero() {
			*cpu = new(*c)
			(*cpu).Time = now
		}
		if m := *memory; m != nil && m.Time.IsZero() {
			*memory = new(*m)
			(*memory).Time = now
		}
	}
	for i := range pods {
		set(&pods[i].CPU, &pods[i].Memory)
		for j := range pods[i].Containers {
			set(&pods[i].Containers[j].CPU, &pods[i].Containers[j].Memory)
		}
	}
}

// withoutCPU are the pods of running units that have no figures of CPU, such as those of a batch
// that failed. Their CPU times go on from what they were.
func withoutCPU(pods []stats.PodStats, running []*Unit) sets.Set[types.UID] {
	missing := sets.New[types.UID]()
	for _, unit := range running {
		missing.Insert(unit.Owner.UID)
	}
	for i := range pods {
		if pods[i].CPU != nil {
			missing.Delete(types.UID(pods[i].PodRef.UID))
		}
	}
	return missing
}

// addTimes adds the CPU times of pods and containers of which the service shows the current
// usage alone: metrics-server takes none without. These are since the first reading, as the
// start time of such a container says. Memory has their time, too: metrics-server has one for both.
func (u *usage) addTimes(pods []stats.PodStats, missing sets.Set[types.UID]) {
	type figure struct {
		key    cputime.Key
		cpu    **stats.CPUStats
		memory **stats.MemoryStats
		start  *metav1.Time
	}
	var lacking []figure
	now := map[cputime.Key]cputime.Measurement{}
	look := func(f figure) {
		if cpu := *f.cpu; cpu != nil && cpu.UsageNanoCores != nil && cpu.UsageCoreNanoSeconds == nil {
			lacking, now[f.key] = append(lacking, f), cputime.Measurement{At: cpu.Time, NanoCores: *cpu.UsageNanoCores}
		}
	}
	for i := range pods {
		uid := types.UID(pods[i].PodRef.UID)
		look(figure{cputime.Key{Pod: uid}, &pods[i].CPU, &pods[i].Memory, new(metav1.Time)}) // a pod's is that of its unit
		for j := range pods[i].Containers {
			c := &pods[i].Containers[j]
			look(figure{cputime.Key{Pod: uid, Container: c.Name}, &c.CPU, &c.Memory, &c.StartTime})
		}
	}
	times := u.times.Count(now, missing)
	for _, f := range lacking {
		t, whole := times[f.key], **f.cpu
		whole.Time, whole.UsageCoreNanoSeconds = t.At, &t.Used
		*f.cpu, *f.start = &whole, t.Since
		if *f.memory != nil {
			*f.memory = new(**f.memory)
			(*f.memory).Time = t.At
		}
	}
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
		pods[i].Containers = slices.Clone(pods[i].Containers) // the backend may keep its own
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

// sumMemory is the memory of the node: the sum of its pods'.
func sumMemory(pods []stats.PodStats, at metav1.Time) *stats.MemoryStats {
	var used, working uint64
	for i := range pods {
		if m := pods[i].Memory; m != nil {
			used += ptr.Deref(m.UsageBytes, 0)
			working += ptr.Deref(m.WorkingSetBytes, 0)
		}
	}
	return &stats.MemoryStats{Time: at, UsageBytes: &used, WorkingSetBytes: &working}
}
