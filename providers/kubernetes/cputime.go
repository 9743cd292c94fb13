package kubernetes

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// firstUsed is where the count of CPU time begins, in nanoseconds: metrics-server
// takes what is nothing for no figure.
const firstUsed = uint64(time.Microsecond)

// cpuTimes keeps count of CPU time where it cannot be read: of containers of which
// only the present use is known, and of the node, whose sum must not fall when a
// pod goes. metrics-server knows a use only as the difference of two times. Its zero
// value is ready.
type cpuTimes struct {
	mu         sync.Mutex
	containers map[measured]cpuTime
	pods       map[string]uint64 // as read last, by UID at home
	node       uint64
}

// measured is a container of a remote pod.
type measured struct {
	pod       types.UID
	container string
}

// cpuTime is the CPU time of a container, in nanoseconds, since it was measured
// first: what it used before is not known.
type cpuTime struct {
	since, at metav1.Time
	used      uint64
}

// measurement is what a container uses at a time, in billionths of a core.
type measurement struct {
	at        metav1.Time
	nanoCores uint64
}

// count returns the CPU time of all containers, each of which has used as much
// since its last measurement as it does now.
func (c *cpuTimes) count(now map[measured]measurement) map[measured]cpuTime {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[measured]cpuTime, len(now))
	for of, m := range now {
		t, known := c.containers[of]
		if !known {
			t = cpuTime{since: m.at, at: m.at, used: firstUsed}
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

// ofNode returns the CPU time of the node: what its pods have used since each was
// seen first.
func (c *cpuTimes) ofNode(pods []stats.PodStats) *stats.CPUStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = max(c.node, firstUsed)
	last := make(map[string]uint64, len(pods))
	var at time.Time
	var nanoCores uint64
	for i := range pods {
		cpu := pods[i].CPU
		if cpu == nil {
			continue
		}
		nanoCores += value(cpu.UsageNanoCores)
		uid := pods[i].PodRef.UID
		before, known := c.pods[uid]
		used := max(before, value(cpu.UsageCoreNanoSeconds)) // an answer may have been overtaken
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
