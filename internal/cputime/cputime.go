// Package cputime accumulates CPU times that cannot be read: of containers of which only
// the current usage is known, and of the node, whose sum must not fall when a pod ends.
// metrics-server computes usage from the difference of two CPU times.
package cputime

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// initial is the CPU time, in nanoseconds, of the first measurement: metrics-server
// ignores zero.
const initial = uint64(time.Microsecond)

// tolerance is how much older than the last one a measurement may be that comes late, and how much more
// time than has passed may lie between two, of which one is fresher. Beyond it a clock was set.
const tolerance = 2 * time.Minute

// Times are the CPU times of a node and its containers. The zero value is ready to use.
type Times struct {
	mu         sync.Mutex
	containers map[Key]counted
	pods       map[string]reading // by UID
	node       uint64
}

// reading is what a pod had used when it was last read.
type reading struct {
	used uint64
	at   time.Time
}

// counted is what a container had used when it was last measured, and when that was read by the
// clock of this process.
type counted struct {
	Time
	read time.Time
}

// Key identifies a container, or a pod as a whole if Container is empty.
type Key struct {
	Pod       types.UID
	Container string
}

// Time is a CPU time, in nanoseconds, since the first measurement: what was used before
// is unknown.
type Time struct {
	Since, At metav1.Time
	Used      uint64
}

// Measurement is the usage at a time, in nanocores.
type Measurement struct {
	At        metav1.Time
	NanoCores uint64
}

// Count returns the CPU times of all containers. It assumes that each has had its current
// usage since the last measurement. Containers without one begin again when they are back,
// but for those of missing pods. Clocks of others may be wrong: no time is in the future, and none is
// counted that has not passed.
func (t *Times) Count(current map[Key]Measurement, missing sets.Set[types.UID]) map[Key]Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	wall := metav1.NewTime(now.Round(0))
	times, next := make(map[Key]Time, len(current)), make(map[Key]counted, len(current))
	for of, m := range current {
		m.At = earlier(metav1.NewTime(m.At.Round(0)), wall)
		c, known := t.containers[of]
		if !known {
			c = counted{Time{Since: m.At, At: m.At, Used: initial}, now}
		}
		c.add(m, now)
		times[of], next[of] = c.Time, c
	}
	for of, c := range t.containers {
		if missing.Has(of.Pod) {
			next[of] = c
		}
	}
	t.containers = next
	return times
}

// add adds what was used until a measurement that is read now, unless it is an older one.
func (c *counted) add(m Measurement, now time.Time) {
	at := m.At
	if at.Sub(c.At.Time) < -tolerance {
		at = metav1.NewTime(now.Round(0)) // the clock was set back, and may stay so
	}
	passed, d := now.Sub(c.read), at.Sub(c.At.Time)
	switch {
	case d < -tolerance, d > passed+tolerance: // the clock of this process was set back, or another one right
		d = passed
	case d <= 0:
		return
	}
	c.Used += uint64(float64(m.NanoCores) * d.Seconds())
	c.Since, c.At, c.read = earlier(c.Since, at), at, now
}

func earlier(a, b metav1.Time) metav1.Time {
	if b.Before(&a) {
		return b
	}
	return a
}

// OfNode returns the CPU time of the node: what its pods have used since they were first
// observed. Pods that are missing, which run but have no figures now, have used the
// difference when they are back. No time is in the future, or what is measured next would count as older.
func (t *Times) OfNode(pods []stats.PodStats, missing sets.Set[types.UID]) *stats.CPUStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.node = max(t.node, initial)
	last := make(map[string]reading, len(pods))
	var at time.Time
	read := metav1.Now()
	var nanoCores uint64
	for i := range pods {
		cpu := pods[i].CPU
		if cpu == nil {
			continue
		}
		nanoCores += ptr.Deref(cpu.UsageNanoCores, 0)
		uid, now := pods[i].PodRef.UID, reading{ptr.Deref(cpu.UsageCoreNanoSeconds, 0), earlier(cpu.Time, read).Time}
		before, known := t.pods[uid]
		switch {
		case known && now.used >= before.used:
			t.node += now.used - before.used
		case known && !now.at.After(before.at):
			now = before // an older response may come late; else the pod has begun again
		}
		last[uid] = now
		if now.at.After(at) {
			at = now.at
		}
	}
	for uid, before := range t.pods {
		if _, measured := last[uid]; !measured && missing.Has(types.UID(uid)) {
			last[uid] = before
		}
	}
	t.pods = last
	if at.IsZero() {
		at = read.Time
	}
	node := t.node
	return &stats.CPUStats{Time: metav1.NewTime(at), UsageNanoCores: &nanoCores, UsageCoreNanoSeconds: &node}
}
