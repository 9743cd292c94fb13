package cputime

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The difference of two CPU times divided by that of their timestamps is the measured
// usage: this is how metrics-server computes it.
func TestCPUTimeHasTheMeasuredUse(t *testing.T) {
	var c Times
	main := Key{"u-1", "main"}
	begin := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	after := func(seconds int) metav1.Time { return metav1.NewTime(begin.Add(time.Duration(seconds) * time.Second)) }
	count := func(seconds int, milliCores uint64) Time {
		return c.Count(map[Key]Measurement{main: {after(seconds), milliCores * 1e6}}, nil)[main]
	}
	first := count(0, 9000)
	if first.Used == 0 || !first.Since.Equal(&begin) {
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
		if got := count(step.seconds, step.milliCores); got.Used-first.Used != step.used {
			t.Errorf("after %d s it is %+v, want %d more than %d", step.seconds, got, step.used, first.Used)
		}
	}
	c.Count(nil, sets.New[types.UID]("u-1"))
	if back := count(50, 300); back.Used-first.Used != 7_500_000_000 || !back.Since.Equal(&begin) {
		t.Errorf("one whose pod was missing once has %+v", back)
	}
	c.Count(nil, nil)
	if again := count(60, 100); again.Used != first.Used || !again.Since.After(begin.Time) {
		t.Errorf("one that was away has %+v, want one that is new", again)
	}
}

// The node's CPU time does not decrease when a pod is deleted, and does not include
// what a pod used before it was first observed.
func TestCPUTimeOfNodeGrows(t *testing.T) {
	var c Times
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pod := func(uid string, used uint64, seconds int) stats.PodStats {
		at := metav1.NewTime(begin.Add(time.Duration(seconds) * time.Second))
		return stats.PodStats{PodRef: stats.PodReference{UID: uid}, CPU: &stats.CPUStats{Time: at, UsageCoreNanoSeconds: &used}}
	}
	first := *c.OfNode(nil, nil).UsageCoreNanoSeconds
	if first == 0 {
		t.Error("a node without pods has no CPU time, which counts as no figure")
	}
	for i, step := range []struct {
		pods    []stats.PodStats
		missing []types.UID
		want    uint64
	}{
		{[]stats.PodStats{pod("a", 5e12, 1)}, nil, 0},
		{[]stats.PodStats{pod("a", 5e12+7, 2), pod("b", 3, 2)}, nil, 7},
		{[]stats.PodStats{pod("b", 10, 3)}, nil, 14},
		{[]stats.PodStats{pod("b", 8, 2)}, nil, 14}, // an older measurement
		{[]stats.PodStats{pod("b", 11, 4)}, nil, 15},
		{nil, []types.UID{"b", "c"}, 15},
		{[]stats.PodStats{pod("b", 14, 6)}, nil, 18},
		{[]stats.PodStats{pod("b", 2, 7)}, nil, 18}, // its container was restarted
		{[]stats.PodStats{pod("b", 4, 8)}, nil, 20},
		{nil, nil, 20},
		{[]stats.PodStats{pod("b", 9, 9)}, nil, 20}, // when it was last seen is not known any more
	} {
		if got := *c.OfNode(step.pods, sets.New(step.missing...)).UsageCoreNanoSeconds - first; got != step.want {
			t.Errorf("step %d: the node has used %d, want %d", i, got, step.want)
		}
	}
}
