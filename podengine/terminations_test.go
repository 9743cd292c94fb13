package podengine

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Each end of a container counts once, also across a restart of the process, and
// in any form of the status.
func TestEndsOfContainersAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	inBubbleWith(t, func(r *rig) { r.cfg.Metrics = registry }, func(r *rig) {
		r.runtime.plans["i"] = plan{runs: time.Second}
		r.runtime.plans["a"] = plan{runs: 5 * time.Second, code: 139}
		r.create(makePod("i a", onFailure))
		r.after(3 * time.Second)
		r.runtime.set(func() { r.runtime.plans["a"] = plan{} }) // from the next attempt on
		r.after(5 * time.Second)
		want := func(want map[string]float64) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, family := range families {
				for _, m := range family.Metric {
					if family.GetName() == "kubelet_terminated_containers_total" {
						var labels []string
						for _, label := range m.Label {
							labels = append(labels, label.GetValue())
						}
						got[strings.Join(labels, " ")] = m.Counter.GetValue()
					}
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("ended: %v, want %v", got, want)
			}
		}
		want(map[string]float64{"container 139 Error": 1, "init_container 0 Completed": 1})
		r.restart(time.Second)
		r.after(time.Minute)
		want(map[string]float64{"container 139 Error": 1, "init_container 0 Completed": 1})
	})
}
