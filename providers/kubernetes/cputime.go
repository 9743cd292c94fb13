package kubernetes

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// initialCPUTime is the CPU time, in nanoseconds, of the first measurement:
// metrics-server ignores zero.
const initialCPUTime = uint64(time.Microsecond)

// cpuTimes accumulates CPU times that cannot be read: of containers of which only the
// current usage is known, and of the node, whose sum must not decrease when a pod is
// deleted. metrics-server computes usage from the difference of two CPU times. Its zero
// value is ready to use.
type cpuTimes struct {
	mu         sync.Mutex
	containers map[containerKey]cpuTime
	pods       map[string]uint64 // at the last reading, by UID of the home pod
	node       uint64
}

// containerKey identifies a container of a remote pod.
type containerKey struct {
	pod       types.UID
	container string
}

// cpuTime is the CPU time of a container, in nanoseconds, since its first measurement:
// what it used before is unknown.
type cpuTime struct {
	since, at metav1.Time
	used      uint64
}

// measurement is the usage of a container at a time, in nanocores.
type measurement struct {
	at        metav1.Time
	nanoCores uint64
}

// count returns the CPU times of all containers. It assumes that each container has had
// its current usage since the last measurement.
func (c *cpuTimes) count(now map[containerKey]measurement) map[containerKey]cpuTime {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[containerKey]cpuTime, len(now))
	for of, m := range now {
		t, known := c.containers[of]
		if !known {
			t = cpuTime{since: m.at, at: m.at, used: initialCPUTime}
		}
		if d := m.at.Sub(t.at.Time); d > 0 {
			t.used += uint64(float64(m.nanoCores) * d.Seconds())
			t.at = m.at
		}
		next[of] = t
	}
	c.containers = next
	return next
}

// ofNode returns the CPU time of the node: what its pods have used since they were
// first observed.
func (c *cpuTimes) ofNode(pods []stats.PodStats) *stats.CPUStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = max(c.node, initialCPUTime)
	last := make(map[string]uint64, len(pods))
	var at time.Time
	var nanoCores uint64
	for i := range pods {
		cpu := pods[i].CPU
		if cpu == nil {
			continue
		}
		nanoCores += valueOrZero(cpu.UsageNanoCores)
		uid := pods[i].PodRef.UID
		before, known := c.pods[uid]
		used := max(before, valueOrZero(cpu.UsageCoreNanoSeconds)) // an older response may come late
		if known {
			c.node += used - before
		}
		last[uid] = used
		if cpu.Time.After(at) {
			at = cpu.Time.Time
		}
	}
	c.pods = last
	if at.IsZero() {
		at = time.Now()
	}
	node := c.node
	return &stats.CPUStats{Time: metav1.NewTime(at), UsageNanoCores: &nanoCores, UsageCoreNanoSeconds: &node}
}
