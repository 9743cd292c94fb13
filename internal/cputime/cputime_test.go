package cputime

import (
	"testing"
	"testing/synctest"
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

// A clock that is wrong, for one measurement or from then on, takes nothing of the CPU time and adds
// none that has not passed; only where it is set right there is a jump, of the time alone.
func TestCPUTimeWhenAClockIsSet(t *testing.T) {
	type step struct{ now, measured, used, at int } // in seconds, from the beginning
	for name, steps := range map[string][]step{
		"once ahead":       {{0, 0, 0, 0}, {15, 15, 15, 15}, {20, 3615, 20, 20}, {30, 30, 30, 30}, {45, 45, 45, 45}},
		"ahead":            {{0, 3600, 0, 0}, {15, 3615, 15, 15}, {30, 3630, 30, 30}, {45, 45, 45, 45}},
		"once behind":      {{0, 0, 0, 0}, {15, 15, 15, 15}, {30, -3570, 30, 30}, {40, 40, 40, 40}, {45, 45, 45, 45}},
		"from then behind": {{0, 0, 0, 0}, {15, 15, 15, 15}, {30, -3570, 30, 30}, {45, -3555, 45, 45}, {60, -3540, 60, 60}},
		"set right":        {{0, -3600, 0, -3600}, {15, -3585, 15, -3585}, {30, 30, 30, 30}, {45, 45, 45, 45}},
		"measured seldom":  {{0, 0, 0, 0}, {300, 0, 0, 0}, {600, 600, 600, 600}, {615, 600, 600, 600}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c, whole Times
				begin := time.Now()
				after := func(seconds int) metav1.Time { return metav1.NewTime(begin.Add(time.Duration(seconds) * time.Second)) }
				for _, s := range steps {
					time.Sleep(time.Until(after(s.now).Time))
					got := c.Count(map[Key]Measurement{{"u-1", "main"}: {after(s.measured), 2e8}}, nil)[Key{"u-1", "main"}]
					if used, want := got.Used-initial, uint64(s.used)*2e8; used != want || !got.At.Equal(new(after(s.at))) || !got.Since.Equal(new(after(steps[0].at))) {
						t.Errorf("after %d s, %d by the clock, it is %+v, want %d at %s", s.now, s.measured, got, want, after(s.at))
					}
					node := whole.OfNode([]stats.PodStats{{PodRef: stats.PodReference{UID: "u-1"},
						CPU: &stats.CPUStats{Time: after(s.measured), UsageCoreNanoSeconds: &got.Used}}}, nil)
					if node.Time.After(time.Now()) || *node.UsageCoreNanoSeconds != got.Used {
						t.Errorf("after %d s, %d by the clock, the node's is %d at %s", s.now, s.measured, *node.UsageCoreNanoSeconds, node.Time)
					}
				}
			})
		})
	}
}

// Where the clock of the node is set back, the CPU time goes on from what it was, and has not begun later
// than it was measured: metrics-server would take no measurement until then.
func TestCPUTimeWhenTheNodesClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Times
		main := Key{"u-1", "main"}
		before := metav1.NewTime(time.Now().Add(time.Hour).Round(0))
		c.containers = map[Key]counted{main: {Time{Since: before, At: before, Used: 7e9}, time.Now()}} // as of before it was set
		time.Sleep(10 * time.Second)
		if got := c.Count(map[Key]Measurement{main: {metav1.Now(), 1e9}}, nil)[main]; got.Used != 17e9 || !got.At.Equal(new(metav1.Now())) || got.Since != got.At {
			t.Errorf("it is %+v, want 17 s now", got)
		}
	})
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
