package nomad

import (
	"cmp"
	"context"
	"path"
	"time"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Usage implements podgroup.Meter, for one unit: see Options.UsageBatch.
func (b *backend) Usage(ctx context.Context, units []*podgroup.Unit) ([]stats.PodStats, error) {
	ref, ok := units[0].Data.(allocRef)
	if !ok {
		return make([]stats.PodStats, 1), nil
	}
	usage, err := b.api.Allocations().Stats(&api.Allocation{ID: ref.id, NodeID: ref.node}, query(ctx))
	if err != nil {
		return nil, classify(podgroup.ActionUsage, err)
	}
	return []stats.PodStats{podStats(units[0], usage)}, nil
}

// podStats has the figures of tasks that run: metrics-server drops a pod with others.
func podStats(u *podgroup.Unit, usage *api.AllocResourceUsage) (pod stats.PodStats) {
	at := metav1.NewTime(time.Unix(0, usage.Timestamp))
	pod.CPU, pod.Memory = figures(usage.ResourceUsage, at)
	for name, task := range usage.Tasks {
		found := u.Container(name)
		if task == nil || found == nil || found.Now.State != podgroup.Executing {
			continue
		}
		c := stats.ContainerStats{Name: name}
		c.CPU, c.Memory = figures(task.ResourceUsage, at)
		pod.Containers = append(pod.Containers, c)
	}
	return pod
}

// figures translates what Nomad measures: percents of a CPU, of which podgroup makes CPU time (Nomad's
// ticks are current use, too, in MHz), and bytes.
func figures(usage *api.ResourceUsage, at metav1.Time) (*stats.CPUStats, *stats.MemoryStats) {
	if usage == nil || usage.CpuStats == nil || usage.MemoryStats == nil {
		return nil, nil
	}
	m := usage.MemoryStats
	bytes := max(m.Usage, m.RSS) // by driver one of them is measured
	working := bytes - min(bytes, m.Cache)
	if m.RSS > working {
		working = m.RSS
	}
	return &stats.CPUStats{Time: at, UsageNanoCores: new(uint64(max(0, usage.CpuStats.Percent) * 1e7))},
		&stats.MemoryStats{Time: at, UsageBytes: &bytes, WorkingSetBytes: &working, RSSBytes: new(m.RSS)}
}

// room are resources in Nomad's units.
type room struct{ mhz, mb, gpus int64 }

func (r *room) add(mhz, mb, gpus int64) { r.mhz, r.mb, r.gpus = r.mhz+mhz, r.mb+mb, r.gpus+gpus }

// Report implements podgroup.Reporter: the node's capacity is that of the machines that take
// work, and what may be allocated is that less what others have reserved.
func (b *backend) Report(ctx context.Context, n *corev1.Node) error {
	machines := map[string]bool{}
	var all, others room
	_, err := pages(ctx, func(q *api.QueryOptions) (*api.QueryMeta, error) {
		q.Params = map[string]string{"resources": "true"}
		list, meta, err := b.api.Nodes().List(q)
		for _, node := range list {
			if b.takesWork(node) {
				machines[node.ID] = true
				all.add(roomOf(node))
			}
		}
		return meta, err
	})
	if err != nil {
		return err
	}
	_, err = pages(ctx, func(q *api.QueryOptions) (*api.QueryMeta, error) {
		q.Namespace, q.Params = api.AllNamespacesNamespace, map[string]string{"resources": "true", "task_states": "false"}
		list, meta, err := b.api.Allocations().List(q)
		for _, a := range list {
			if machines[a.NodeID] && !b.isOurs(a) && !ended(a) {
				others.add(reserved(a.AllocatedResources))
			}
		}
		return meta, err
	})
	if err != nil {
		return err
	}
	b.setCapacity(n, all, others)
	return nil
}

// takesWork reports whether pods may run on a machine.
func (b *backend) takesWork(node *api.NodeListStub) bool {
	return node.Status == api.NodeStatusReady && node.SchedulingEligibility == api.NodeSchedulingEligible && !node.Drain &&
		cmp.Or(node.NodePool, api.NodePoolDefault) == b.cfg.NodePool && // Nomad before 1.6 has no pools
		node.NodeResources != nil && b.inDatacenters(node.Datacenter)
}

// inDatacenters reports whether a datacenter is among those of the configuration, which may
// be patterns.
func (b *backend) inDatacenters(name string) bool {
	for _, pattern := range b.cfg.Datacenters {
		if matched, err := path.Match(pattern, name); err == nil && matched {
			return true
		}
	}
	return false
}

func roomOf(node *api.NodeListStub) (mhz, mb, gpus int64) {
	r := node.NodeResources
	mhz, mb = r.Cpu.CpuShares, r.Memory.MemoryMB
	if kept := node.ReservedResources; kept != nil {
		mhz, mb = mhz-int64(kept.Cpu.CpuShares), mb-int64(kept.Memory.MemoryMB) // #nosec G115 -- far below the maximum
	}
	for _, d := range r.Devices {
		if d == nil || d.Vendor != "nvidia" || d.Type != "gpu" {
			continue
		}
		for _, one := range d.Instances {
			if one != nil && one.Healthy {
				gpus++
			}
		}
	}
	return mhz, mb, gpus
}

// isOurs reports whether an allocation is of a pod of this node.
func (b *backend) isOurs(a *api.AllocationListStub) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[a.JobID]
	return r != nil && a.Namespace == b.cfg.Namespace && b.isOfNode(r.meta)
}

// isOfNode reports whether the meta of a job is that of a pod of this node. Tags that are too long
// for one key go on in another.
func (b *backend) isOfNode(meta map[string]string) bool {
	tag := func(key string) string { return meta[key] + meta[key+".2"] }
	return tag(podgroup.TagNodeName) == b.node && tag(podgroup.TagClusterName) == b.cfg.ClusterName
}

func ended(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return false
}

func reserved(r *api.AllocatedResources) (mhz, mb, gpus int64) {
	if r == nil {
		return 0, 0, 0
	}
	for _, t := range r.Tasks {
		if t == nil {
			continue
		}
		mhz, mb = mhz+t.Cpu.CpuShares, mb+t.Memory.MemoryMB
		for _, d := range t.Devices {
			if d != nil && d.Vendor == "nvidia" && d.Type == "gpu" {
				gpus += int64(len(d.DeviceIDs))
			}
		}
	}
	return mhz, mb, gpus
}

// setCapacity sets what the configuration leaves to Nomad.
func (b *backend) setCapacity(n *corev1.Node, all, others room) {
	n.Status.Capacity, n.Status.Allocatable = n.Status.Capacity.DeepCopy(), n.Status.Allocatable.DeepCopy()
	set := func(name corev1.ResourceName, has, used resource.Quantity, fixed bool) {
		if fixed {
			return
		}
		left := has.DeepCopy()
		left.Sub(used)
		if left.Sign() < 0 {
			left = resource.Quantity{}
		}
		n.Status.Capacity[name], n.Status.Allocatable[name] = has, left
	}
	cpu := func(mhz int64) resource.Quantity {
		return *resource.NewMilliQuantity(mhz*1000/int64(b.cfg.MHzPerCPU), resource.DecimalSI)
	}
	memory := func(mb int64) resource.Quantity { return *resource.NewQuantity(mb<<20, resource.BinarySI) }
	count := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
	set(corev1.ResourceCPU, cpu(all.mhz), cpu(others.mhz), b.cfg.CPU != nil)
	set(corev1.ResourceMemory, memory(all.mb), memory(others.mb), b.cfg.Memory != nil)
	set(resourceGPU, count(all.gpus), count(others.gpus), all.gpus == 0)
}
