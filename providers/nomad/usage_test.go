package nomad

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// metrics-server takes a container by its CPU time, memory and start time, and no pod with one that
// lacks any. Nomad shows the current use alone, which makes the CPU time.
func TestUsage(t *testing.T) {
	withInit := func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox"}}
	}
	inVirtualTime(t, withInit, func(t *testing.T, r *rig, _ *corev1.Pod) {
		r.api.CPUPercent = 50
		metrics := func() map[string]float64 {
			time.Sleep(time.Minute)
			families, err := r.GetMetricsResource(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]float64{}
			for _, f := range families {
				for _, m := range f.Metric {
					found[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
				if len(f.Metric) != 1 {
					t.Errorf("%s is %v, want it of what runs", f.GetName(), f.Metric)
				}
			}
			return found
		}
		first := metrics()
		if first["container_memory_working_set_bytes"] != 1<<20 || first["container_start_time_seconds"] == 0 {
			t.Errorf("the metrics are %v", first)
		}
		now := metrics()
		for _, name := range []string{"container_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total", "node_cpu_usage_seconds_total"} {
			if got := fmt.Sprintf("%.3f", now[name]-first[name]); first[name] == 0 || got != "30.000" {
				t.Errorf("%s is %v, and a minute later %v", name, first[name], now[name])
			}
		}
	})
}
