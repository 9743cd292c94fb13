package podgroup_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// metered is a listing of which a test says what a unit uses.
type metered struct {
	listing
	usage func() stats.PodStats
}

func (m metered) Usage(ctx context.Context, units []*podgroup.Unit) (all []stats.PodStats, err error) {
	err = m.w.Serve(ctx, string(podgroup.ActionUsage), func() error {
		for range units {
			all = append(all, m.usage())
		}
		return nil
	})
	return all, err
}

// metrics are the values of the resource metrics.
func metrics(t *testing.T, p nodeutil.Provider) map[string]float64 {
	t.Helper()
	families, err := p.GetMetricsResource(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			found[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return found
}

// metrics-server takes no pod without CPU time. Where a service shows the current use alone,
// the time is made of it, also over a reading that fails.
func TestCPUTimeOfTheCurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, o := grouptest.New(time.Second), grouptest.NewCluster("home"), options()
		o.UsageBatch = 1
		cpu := func() *stats.CPUStats {
			return &stats.CPUStats{Time: metav1.Now(), UsageNanoCores: new(uint64(5e8))}
		}
		p, _ := c.Start(t, metered{listing{memory{w}}, func() stats.PodStats {
			return stats.PodStats{CPU: cpu(), Containers: []stats.ContainerStats{
				{Name: "main", CPU: cpu(), Memory: &stats.MemoryStats{WorkingSetBytes: new(uint64(7))}}, {Name: "ended"},
			}}
		}}, o)
		create(t, c, p, grouptest.NewPod("a"))
		create(t, c, p, grouptest.NewPod("b"))
		time.Sleep(time.Minute)
		began := time.Now()
		first := metrics(t, p)
		if first["container_cpu_usage_seconds_total"] <= 0 || first["pod_cpu_usage_seconds_total"] <= 0 || first["node_cpu_usage_seconds_total"] <= 0 {
			t.Errorf("the first metrics are %v", first)
		}
		// What a container had used before the first reading is not known.
		if start := first["container_start_time_seconds"]; start != 2*float64(began.Unix()) {
			t.Errorf("the containers have started at %v, want two at %d", start, began.Unix())
		}
		time.Sleep(time.Minute)
		w.Refuse(string(podgroup.ActionUsage), 1, &grouptest.Refusal{Status: 500, Code: "InternalError"})
		if summary, err := p.GetStatsSummary(t.Context()); err != nil || len(summary.Pods) != 1 {
			t.Fatalf("with one call that fails: %+v, %v", summary, err)
		}
		time.Sleep(time.Minute)
		now := metrics(t, p)
		for _, name := range []string{"container_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total", "node_cpu_usage_seconds_total"} {
			if got := fmt.Sprintf("%.3f", now[name]-first[name]); got != "120.000" {
				t.Errorf("%s has grown by %s in two minutes, want 120.000", name, got)
			}
		}
	})
}

// A backend need not say when it measured, and may keep what it returned.
func TestCPUTimeOfFiguresWithoutATime(t *testing.T) {
	figures := map[string]func(seconds uint64) stats.CPUStats{
		"current use": func(uint64) stats.CPUStats { return stats.CPUStats{UsageNanoCores: new(uint64(5e8))} },
		"CPU time":    func(seconds uint64) stats.CPUStats { return stats.CPUStats{UsageCoreNanoSeconds: new(seconds * 5e8)} },
	}
	for name, figure := range figures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
				var kept stats.CPUStats
				containers := []stats.ContainerStats{{Name: "main", CPU: &kept, Memory: &stats.MemoryStats{WorkingSetBytes: new(uint64(7))}}}
				p, _ := c.Start(t, metered{listing{memory{w}}, func() stats.PodStats {
					return stats.PodStats{CPU: &kept, Containers: containers}
				}}, options())
				create(t, c, p, grouptest.NewPod("a"))
				read := func(seconds uint64) map[string]float64 {
					kept = figure(seconds)
					time.Sleep(time.Minute)
					found := metrics(t, p)
					if !kept.Time.IsZero() {
						t.Error("what the backend keeps was changed")
					}
					summary, err := p.GetStatsSummary(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, one := range []metav1.Time{summary.Pods[0].CPU.Time, summary.Pods[0].Containers[0].CPU.Time, summary.Pods[0].Containers[0].Memory.Time, summary.Node.CPU.Time} {
						if time.Since(one.Time) > 2*time.Second {
							t.Errorf("there are figures of %s, want them of now", one)
						}
					}
					return found
				}
				first := read(1000)
				if start := first["container_start_time_seconds"]; start <= 0 || start > float64(time.Now().Unix()) {
					t.Errorf("the container has started at %v", start)
				}
				second := read(1060)
				for _, name := range []string{"container_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total", "node_cpu_usage_seconds_total"} {
					if got := fmt.Sprintf("%.1f", second[name]-first[name]); got != "30.0" && got != "30.5" { // the pods are listed meanwhile
						t.Errorf("%s has grown by %s in a minute, want 30", name, got)
					}
				}
				restarted := read(10)
				third := read(70)
				if got := fmt.Sprintf("%.1f", third["node_cpu_usage_seconds_total"]-restarted["node_cpu_usage_seconds_total"]); got != "30.0" && got != "30.5" {
					t.Errorf("after a restart the node's has grown by %s in a minute, want 30", got)
				}
			})
		})
	}
}

// The clock of a backend that is ahead for a moment makes no figures of the future, and those of memory
// have the CPU's time: metrics-server has one for both.
func TestCPUTimeOfAClockThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		var ahead time.Duration
		p, _ := c.Start(t, metered{listing{memory{w}}, func() stats.PodStats {
			at := metav1.NewTime(time.Now().Add(ahead))
			cpu, memory := &stats.CPUStats{Time: at, UsageNanoCores: new(uint64(5e8))}, &stats.MemoryStats{Time: at, WorkingSetBytes: new(uint64(7))}
			return stats.PodStats{CPU: cpu, Memory: memory, Containers: []stats.ContainerStats{{Name: "main", CPU: cpu, Memory: memory}}}
		}}, options())
		create(t, c, p, grouptest.NewPod("a"))
		first := map[string]float64{}
		for i, by := range []time.Duration{0, time.Hour, 0} {
			ahead = by
			time.Sleep(time.Minute)
			now := metrics(t, p)
			summary, err := p.GetStatsSummary(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pod := summary.Pods[0]
			main := pod.Containers[0]
			if at := pod.CPU.Time; at.After(time.Now()) || !pod.Memory.Time.Equal(&at) || !main.CPU.Time.Equal(&at) || !main.Memory.Time.Equal(&at) || !summary.Node.CPU.Time.Equal(&at) {
				t.Errorf("at %s reading %d is of %s, %s, %s, %s, and of the node %s", time.Now(), i, at, pod.Memory.Time, main.CPU.Time, main.Memory.Time, summary.Node.CPU.Time)
			}
			if i == 0 {
				first = now
			}
			for _, name := range []string{"container_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total", "node_cpu_usage_seconds_total"} {
				if got := now[name] - first[name]; got < float64(30*i) || got > float64(31*i) { // the pods are listed meanwhile
					t.Errorf("%s has grown by %.1f in %d minutes, want 30 each", name, got, i)
				}
			}
		}
	})
}

// A counter that begins again with its container, and one that ends with its pod, take nothing
// of the node's.
func TestCPUTimeOfTheNodeGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		var used uint64
		p, _ := c.Start(t, metered{listing{memory{w}}, func() stats.PodStats {
			return stats.PodStats{CPU: &stats.CPUStats{Time: metav1.Now(), UsageCoreNanoSeconds: new(used)}}
		}}, options())
		read := func(now uint64) float64 {
			used = now
			time.Sleep(time.Minute)
			return metrics(t, p)["node_cpu_usage_seconds_total"]
		}
		create(t, c, p, grouptest.NewPod("a"))
		create(t, c, p, grouptest.NewPod("b"))
		first := read(100e9)
		for _, step := range []struct {
			used, want uint64
		}{{110e9, 20}, {1e9, 20}, {2e9, 22}} {
			if got := fmt.Sprint(read(step.used) - first); got != fmt.Sprint(step.want) {
				t.Errorf("with %d of each pod the node has used %s s more than at first, want %d", step.used, got, step.want)
			}
		}
		if err := w.Remove("a"); err != nil {
			t.Fatal(err)
		}
		if got := read(3e9) - first; fmt.Sprint(got) != "23" {
			t.Errorf("when a pod is gone the node has used %v s more than at first, want 23", got)
		}
	})
}
