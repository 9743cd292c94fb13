package kubernetes

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The difference of two CPU times divided by that of their timestamps is the measured
// usage: this is how metrics-server computes it.
func TestCPUTimeHasTheMeasuredUse(t *testing.T) {
	var c cpuTimes
	main := containerKey{"u-1", "main"}
	begin := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	after := func(seconds int) metav1.Time { return metav1.NewTime(begin.Add(time.Duration(seconds) * time.Second)) }
	count := func(seconds int, milliCores uint64) cpuTime {
		return c.count(map[containerKey]measurement{main: {after(seconds), milliCores * 1e6}})[main]
	}
	first := count(0, 9000)
	if first.used == 0 || !first.since.Equal(&begin) {
		t.Errorf("the first is %+v, want some time since then: before, the use is not known", first)
	}
	for _, step := range []struct {
		seconds    int
		milliCores uint64
		used       uint64
	}{
		{15, 200, 3e9}, {15, 200, 3e9}, // requested twice meanwhile
		{30, 100, 4_500_000_000}, {25, 9000, 4_500_000_000}, // an older measurement
		{40, 0, 4_500_000_000},
	} {
		if got := count(step.seconds, step.milliCores); got.used-first.used != step.used {
			t.Errorf("after %d s it is %+v, want %d more than %d", step.seconds, got, step.used, first.used)
		}
	}
	c.count(nil)
	if again := count(60, 100); again.used != first.used || !again.since.After(begin.Time) {
		t.Errorf("one that was away has %+v, want one that is new", again)
	}
}

// The node's CPU time does not decrease when a pod is deleted, and does not include
// what a pod used before it was first observed.
func TestCPUTimeOfNodeGrows(t *testing.T) {
	var c cpuTimes
	pod := func(uid string, used uint64) stats.PodStats {
		return stats.PodStats{PodRef: stats.PodReference{UID: uid}, CPU: &stats.CPUStats{UsageCoreNanoSeconds: &used}}
	}
	first := *c.ofNode(nil).UsageCoreNanoSeconds
	if first == 0 {
		t.Error("a node without pods has no CPU time, which counts as no figure")
	}
	for i, step := range []struct {
		pods []stats.PodStats
		want uint64
	}{
		{[]stats.PodStats{pod("a", 5e12)}, 0},
		{[]stats.PodStats{pod("a", 5e12+7), pod("b", 3)}, 7},
		{[]stats.PodStats{pod("b", 10)}, 14},
		{[]stats.PodStats{pod("b", 8)}, 14}, // an older measurement
		{[]stats.PodStats{pod("b", 11)}, 15},
	} {
		if got := *c.ofNode(step.pods).UsageCoreNanoSeconds - first; got != step.want {
			t.Errorf("step %d: the node has used %d, want %d", i, got, step.want)
		}
	}
}
