package machine

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// connectTimeout is for how long a caller waits for the connection with an agent.
	connectTimeout = 5 * time.Second
	// usageTimeout is how long an agent may take to answer with figures, and usageCalls how many
	// are asked at the same time.
	usageTimeout, usageCalls = 5 * time.Second, 20
	// maxVolumes is how many volumes a machine may show figures of, and maxName how long their
	// names may be, in bytes.
	maxVolumes, maxName = 100, 253
)

// agentOf returns the agent that has the pod of a unit, and its link.
func (b *backend) agentOf(ctx context.Context, u *podgroup.Unit) (nodeutil.Provider, *link, error) {
	b.mu.Lock()
	m := b.members[u.ID]
	var l *link
	if m != nil {
		l = m.link
	}
	b.mu.Unlock()
	if l == nil {
		return nil, nil, errdefs.NotFoundf("machine %s is gone, or not connected", u.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	provider, err := l.connected(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("machine %s: %w", u.ID, err)
	}
	return provider, l, nil
}

// Update implements podgroup.Updater. What is in volumes the connection keeps fresh by itself.
func (b *backend) Update(ctx context.Context, u *podgroup.Unit, change podgroup.Change) error {
	if !change.Images {
		return nil
	}
	provider, l, err := b.agentOf(ctx, u)
	if err != nil {
		return err
	}
	if err := provider.UpdatePod(ctx, change.Pod); err != nil {
		return err
	}
	l.setImages(change.Pod)
	return nil
}

// StreamLog implements podgroup.LogStreamer.
func (b *backend) StreamLog(ctx context.Context, u *podgroup.Unit, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	provider, l, err := b.agentOf(ctx, u)
	if err != nil {
		return nil, err
	}
	return provider.GetContainerLogs(ctx, l.owner.Namespace, l.owner.Name, container, opts)
}

// Exec implements podgroup.Execer.
func (b *backend) Exec(ctx context.Context, u *podgroup.Unit, container string, command []string, attach api.AttachIO) error {
	provider, l, err := b.agentOf(ctx, u)
	if err != nil {
		return err
	}
	return provider.RunInContainer(ctx, l.owner.Namespace, l.owner.Name, container, command, attach)
}

// Attach implements podgroup.Attacher.
func (b *backend) Attach(ctx context.Context, u *podgroup.Unit, container string, attach api.AttachIO) error {
	provider, l, err := b.agentOf(ctx, u)
	if err != nil {
		return err
	}
	return provider.AttachToContainer(ctx, l.owner.Namespace, l.owner.Name, container, attach)
}

// Forward implements podgroup.Forwarder.
func (b *backend) Forward(ctx context.Context, u *podgroup.Unit, port int32, stream io.ReadWriteCloser) error {
	provider, l, err := b.agentOf(ctx, u)
	if err != nil {
		return err
	}
	return provider.PortForward(ctx, l.owner.Namespace, l.owner.Name, port, stream)
}

// Usage implements podgroup.Meter. An agent that does not answer has no figures.
func (b *backend) Usage(ctx context.Context, units []*podgroup.Unit) ([]stats.PodStats, error) {
	found := make([]stats.PodStats, len(units))
	var group errgroup.Group
	group.SetLimit(usageCalls)
	for i, u := range units {
		group.Go(func() error {
			found[i] = b.usageOf(ctx, u)
			return nil
		})
	}
	return found, group.Wait()
}

func (b *backend) usageOf(ctx context.Context, u *podgroup.Unit) (none stats.PodStats) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	provider, l, err := b.agentOf(ctx, u)
	if err != nil || !l.answers() { // else many that hang would hold up the figures of all
		return none
	}
	summary, err := provider.GetStatsSummary(ctx)
	if err != nil || summary == nil {
		return none
	}
	for i := range summary.Pods {
		if summary.Pods[i].PodRef.UID == string(l.owner.UID) {
			return withSum(l.boundedStats(&summary.Pods[i]))
		}
	}
	return none
}

// boundedStats returns what is kept of the figures of a machine, which may send any: those of the
// containers and volumes that the pod has.
func (l *link) boundedStats(in *stats.PodStats) stats.PodStats {
	out := stats.PodStats{StartTime: in.StartTime, CPU: in.CPU, Memory: in.Memory, IO: in.IO, EphemeralStorage: in.EphemeralStorage, ProcessStats: in.ProcessStats, Swap: in.Swap}
	if in.Network != nil {
		network := *in.Network
		network.Interfaces = nil
		network.Name = clip(network.Name, maxText)
		out.Network = &network
	}
	_, images := l.observed()
	known := map[string]bool{}
	for i := range in.Containers {
		c := &in.Containers[i]
		if _, is := images[c.Name]; !is || known[c.Name] {
			continue
		}
		known[c.Name] = true
		out.Containers = append(out.Containers, stats.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, IO: c.IO, Rootfs: c.Rootfs, Logs: c.Logs, Swap: c.Swap})
	}
	for i := range in.VolumeStats {
		v := &in.VolumeStats[i]
		if len(out.VolumeStats) < maxVolumes && len(v.Name) <= maxName {
			out.VolumeStats = append(out.VolumeStats, stats.VolumeStats{Name: v.Name, FsStats: v.FsStats})
		}
	}
	return out
}

// withSum adds the sum of its containers to the figures of a pod that has none as a whole.
func withSum(pod stats.PodStats) stats.PodStats {
	if pod.CPU != nil || pod.Memory != nil {
		return pod
	}
	cpu, memory := &stats.CPUStats{UsageNanoCores: new(uint64), UsageCoreNanoSeconds: new(uint64)}, &stats.MemoryStats{UsageBytes: new(uint64), WorkingSetBytes: new(uint64)}
	for i := range pod.Containers {
		if c := pod.Containers[i].CPU; c != nil {
			pod.CPU, cpu.Time = cpu, c.Time
			*cpu.UsageNanoCores += ptr.Deref(c.UsageNanoCores, 0)
			*cpu.UsageCoreNanoSeconds += ptr.Deref(c.UsageCoreNanoSeconds, 0)
		}
		if m := pod.Containers[i].Memory; m != nil {
			pod.Memory, memory.Time = memory, m.Time
			*memory.UsageBytes += ptr.Deref(m.UsageBytes, 0)
			*memory.WorkingSetBytes += ptr.Deref(m.WorkingSetBytes, 0)
		}
	}
	return pod
}
