package api

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// cpuMeter sums up the CPU time of pods into one of the node that does not fall
// when a pod goes. Its zero value is ready.
type cpuMeter struct {
	mu    sync.Mutex
	last  map[string]cpuReading // by pod or container
	total uint64
}

// cpuReading is what a pod or container had used when it was last read.
type cpuReading struct {
	used uint64
	at   time.Time
}

const (
	// maxAbsence is how long a pod's reading is kept while summaries lack it: one that is
	// back by then has used the difference, not all that it ever used, since.
	maxAbsence = time.Hour
	// maxAbsent is how many such readings are kept.
	maxAbsent = 1000
)

// complete returns a copy of the summary in which usage that it lacks is summed
// up: of pods from their containers, of the node from its pods. A node that
// uses nothing while pods do is taken for one without figures.
func (m *cpuMeter) complete(summary *stats.Summary) *stats.Summary {
	whole := *summary
	whole.Pods = slices.Clone(summary.Pods)
	if cpu := m.read(whole.Pods); noCPU(whole.Node.CPU) && cpu != nil {
		whole.Node.CPU = cpu
	}
	var podMemory []*stats.MemoryStats
	for i := range whole.Pods {
		pod := &whole.Pods[i]
		var cpu []*stats.CPUStats
		var memory []*stats.MemoryStats
		for _, c := range pod.Containers {
			cpu, memory = append(cpu, c.CPU), append(memory, c.Memory)
		}
		if noCPU(pod.CPU) {
			pod.CPU = sumCPU(cpu, pod.CPU)
		}
		if noMemory(pod.Memory) {
			pod.Memory = sumMemory(memory, pod.Memory)
		}
		podMemory = append(podMemory, pod.Memory)
	}
	if noMemory(whole.Node.Memory) {
		whole.Node.Memory = sumMemory(podMemory, whole.Node.Memory)
	}
	return &whole
}

// read takes a reading of all pods, and returns what has been used since the
// first one; nil if there is no figure.
func (m *cpuMeter) read(pods []stats.PodStats) *stats.CPUStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := make(map[string]cpuReading, len(pods))
	now := time.Now()
	var latest metav1.Time
	take := func(key string, cpu *stats.CPUStats) {
		used := *cpu.UsageCoreNanoSeconds
		if before := m.last[key].used; used > before { // less: a restart, or a reading that was overtaken
			m.total += used - before
		}
		seen[key] = cpuReading{used, now}
		latest = later(latest, cpu.Time)
	}
	for _, pod := range pods {
		key := pod.PodRef.Namespace + "/" + pod.PodRef.Name + "/" + pod.PodRef.UID
		if !noCPU(pod.CPU) {
			take(key, pod.CPU)
			continue
		}
		for _, c := range pod.Containers {
			if !noCPU(c.CPU) {
				take(key+"/"+c.Name, c.CPU)
			}
		}
	}
	m.keep(seen, now)
	if m.total == 0 {
		return nil
	}
	total := m.total
	return &stats.CPUStats{Time: latest, UsageCoreNanoSeconds: &total}
}

// keep replaces the last readings by those of now, and what is younger than maxAbsence of
// the others. mu is held.
func (m *cpuMeter) keep(seen map[string]cpuReading, now time.Time) {
	maps.DeleteFunc(m.last, func(key string, r cpuReading) bool {
		_, again := seen[key]
		return again || now.Sub(r.at) > maxAbsence
	})
	if len(m.last) > maxAbsent {
		absent := slices.SortedFunc(maps.Keys(m.last), func(a, b string) int { return m.last[b].at.Compare(m.last[a].at) })
		for _, key := range absent[maxAbsent:] {
			delete(m.last, key)
		}
	}
	maps.Copy(seen, m.last)
	m.last = seen
}

func noCPU(s *stats.CPUStats) bool {
	return s == nil || s.UsageCoreNanoSeconds == nil || *s.UsageCoreNanoSeconds == 0
}

func noMemory(s *stats.MemoryStats) bool {
	return s == nil || s.WorkingSetBytes == nil || *s.WorkingSetBytes == 0
}

// sumCPU adds up the parts, or returns otherwise if they have no figure.
func sumCPU(parts []*stats.CPUStats, otherwise *stats.CPUStats) *stats.CPUStats {
	var sum stats.CPUStats
	for _, part := range parts {
		if part != nil && part.UsageCoreNanoSeconds != nil {
			sum.UsageCoreNanoSeconds = plus(sum.UsageCoreNanoSeconds, *part.UsageCoreNanoSeconds)
			sum.Time = later(sum.Time, part.Time)
		}
	}
	if sum.UsageCoreNanoSeconds == nil {
		return otherwise
	}
	return &sum
}

// sumMemory adds up the parts, or returns otherwise if they have no figure.
func sumMemory(parts []*stats.MemoryStats, otherwise *stats.MemoryStats) *stats.MemoryStats {
	var sum stats.MemoryStats
	for _, part := range parts {
		if part != nil && part.WorkingSetBytes != nil {
			sum.WorkingSetBytes = plus(sum.WorkingSetBytes, *part.WorkingSetBytes)
			sum.Time = later(sum.Time, part.Time)
		}
	}
	if sum.WorkingSetBytes == nil {
		return otherwise
	}
	return &sum
}

func plus(sum *uint64, part uint64) *uint64 {
	if sum != nil {
		part += *sum
	}
	return &part
}

func later(a, b metav1.Time) metav1.Time {
	if b.After(a.Time) {
		return b
	}
	return a
}
