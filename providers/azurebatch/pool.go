package azurebatch

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// pool is what is known of the pool.
type pool struct {
	read       time.Time // zero if it was never read
	containers bool      // its tasks have to be container tasks
	nodes      int64     // how many machines it has, will have, or may have
	perNode    int64     // task slots of a machine
	cpu        int64     // thousandths of CPUs of a machine
	memory     int64
	gpus       int64
}

// poolAge is how long what is known of the pool is used.
const poolAge = 30 * time.Second

// poolOf returns the pool, from the service if it was read long ago.
func (b *backend) poolOf(ctx context.Context) (pool, error) {
	b.mu.Lock()
	known := b.pool
	b.mu.Unlock()
	if !known.read.IsZero() && time.Since(known.read) < poolAge {
		return known, nil
	}
	var got azbatch.GetPoolResponse
	err := b.budget.Do(ctx, actionPool, func() (err error) {
		got, err = b.client.GetPool(ctx, b.cfg.PoolID, &azbatch.GetPoolOptions{SelectParam: []string{
			"id", "state", "vmSize", "taskSlotsPerNode", "enableAutoScale", "currentDedicatedNodes", "currentLowPriorityNodes",
			"targetDedicatedNodes", "targetLowPriorityNodes", "virtualMachineConfiguration",
		}})
		return classify(podgroup.ActionReport, err)
	})
	if err != nil {
		return pool{}, err
	}
	if !same(got.State, azbatch.PoolStateActive) {
		return pool{}, errdefs.AsUnavailable(fmt.Errorf("pool %s is being deleted: set another poolID", b.cfg.PoolID))
	}
	p := b.measure(&got.Pool)
	if p.nodes -= b.broken(ctx); p.nodes < 0 {
		p.nodes = 0
	}
	b.mu.Lock()
	b.pool = p
	b.mu.Unlock()
	return p, nil
}

// measure returns what a pool has. One that scales by a formula may have machines that do not
// exist yet: the tasks that wait for them make it grow.
func (b *backend) measure(got *azbatch.Pool) pool {
	cpus, gpus := sizeNamed(deref(got.VMSize))
	p := pool{read: time.Now(), perNode: int64(cmp.Or(deref(got.TaskSlotsPerNode), 1)), cpu: cpus * 1000, memory: cpus * 4 << 30, gpus: gpus}
	if c := b.cfg.NodeCPU; c != nil {
		p.cpu = c.MilliValue()
	}
	if m := b.cfg.NodeMemory; m != nil {
		p.memory = m.Value()
	}
	if g := b.cfg.NodeGPUs; g != nil {
		p.gpus = g.Value()
	}
	if vm := got.VirtualMachineConfiguration; vm != nil {
		p.containers = vm.ContainerConfiguration != nil
	}
	current := int64(deref(got.CurrentDedicatedNodes)) + int64(deref(got.CurrentLowPriorityNodes))
	target := int64(deref(got.TargetDedicatedNodes)) + int64(deref(got.TargetLowPriorityNodes))
	if p.nodes = max(current, target); deref(got.EnableAutoScale) {
		p.nodes = max(p.nodes, b.cfg.MaxNodes)
	}
	return p
}

// broken returns how many machines of the pool take no tasks until somebody sees to them.
func (b *backend) broken(ctx context.Context) (n int64) {
	filter := "poolId eq '" + b.cfg.PoolID + "'"
	var page azbatch.ListPoolNodeCountsResponse
	err := b.budget.Do(ctx, actionPool, func() (err error) {
		page, err = b.client.NewListPoolNodeCountsPager(&azbatch.ListPoolNodeCountsOptions{Filter: &filter}).NextPage(ctx)
		return classify(podgroup.ActionReport, err)
	})
	if err != nil { // the capacity is a little too large for once
		return 0
	}
	for _, counts := range page.Value {
		for _, kind := range []*azbatch.NodeCounts{counts.Dedicated, counts.LowPriority} {
			if kind != nil && deref(counts.PoolID) == b.cfg.PoolID {
				n += int64(deref(kind.Unusable)) + int64(deref(kind.StartTaskFailed)) + int64(deref(kind.Offline))
			}
		}
	}
	return n
}

// listInterval is how often the machines are listed at most.
const listInterval = 10 * time.Second

// listNodes lists the pool's machines, if a task runs on one whose address is not known.
func (b *backend) listNodes(ctx context.Context, tasks []azbatch.Task) {
	isUnknown := func(t azbatch.Task) bool {
		return same(t.State, azbatch.TaskStateRunning) && t.NodeInfo != nil && b.addressOf(&t) == ""
	}
	b.mu.Lock()
	listed := b.noded
	b.mu.Unlock()
	if time.Since(listed) < listInterval || !slices.ContainsFunc(tasks, isUnknown) {
		return
	}
	addresses := map[string]string{}
	pager := b.client.NewListNodesPager(b.cfg.PoolID, &azbatch.ListNodesOptions{SelectParam: []string{"id", "ipAddress"}})
	for pager.More() {
		var page azbatch.ListNodesResponse
		err := b.budget.Do(ctx, actionPool, func() (err error) {
			page, err = pager.NextPage(ctx)
			return classify(podgroup.ActionReport, err)
		})
		if err != nil {
			log.G(ctx).WithError(err).Debug("Cannot list the machines of the pool")
			break
		}
		for _, n := range page.Value {
			addresses[deref(n.ID)] = deref(n.IPAddress)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes, b.noded = addresses, time.Now()
}

// addressOf returns the address of the machine on which a task runs, or has run. A pod has no
// other: its connections come from there.
func (b *backend) addressOf(t *azbatch.Task) string {
	if t.NodeInfo == nil {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[deref(t.NodeInfo.NodeID)]
}

// sizeName is the name of a size of machines: family, number of CPUs, features, version.
var sizeName = regexp.MustCompile(`(?i)^(?:standard|basic)_([a-z]+)(\d+)`)

// sizeNamed returns what the name of a size says; at least a CPU.
func sizeNamed(name string) (cpus, gpus int64) {
	parts := sizeName.FindStringSubmatch(name)
	if parts == nil {
		return 1, 0
	}
	cpus, _ = strconv.ParseInt(parts[2], 10, 32)
	if strings.HasPrefix(strings.ToUpper(parts[1]), "N") {
		gpus = 1
	}
	return max(cpus, 1), gpus
}

// slots returns how many task slots of a machine a pod takes: its share of what the machine
// has most of in use, at least one. A pod with GPUs takes all: Docker gives each container the
// first GPUs of the machine, and Batch all, so that two pods would have the same ones.
func (p pool) slots(size podgroup.Size) int32 {
	share := max(ratio(size.CPU.MilliValue(), p.cpu), ratio(size.Memory.Value(), p.memory))
	if gpus := size.Other[gpu]; gpus.Sign() > 0 {
		share = 1
	}
	return int32(min(max(math.Ceil(share*float64(p.perNode)), 1), float64(p.perNode))) //nolint:gosec // at most 256
}

func ratio(a, b int64) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Report implements podgroup.Reporter: the capacity is that of the pool.
func (b *backend) Report(ctx context.Context, n *corev1.Node) error {
	if err := b.checkJob(ctx); err != nil {
		return err
	}
	p, err := b.poolOf(ctx)
	if err != nil {
		return err
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(p.nodes*p.cpu, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(p.nodes*p.memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(p.nodes*p.perNode, resource.DecimalSI),
	}
	if p.gpus > 0 {
		capacity[gpu] = *resource.NewQuantity(p.nodes*p.gpus, resource.DecimalSI)
	}
	for name, q := range map[corev1.ResourceName]*resource.Quantity{corev1.ResourceCPU: b.cfg.CPU, corev1.ResourceMemory: b.cfg.Memory, corev1.ResourcePods: b.cfg.Pods} {
		if q != nil {
			capacity[name] = *q
		}
	}
	n.Status.Capacity, n.Status.Allocatable = capacity, capacity.DeepCopy()
	return nil
}
