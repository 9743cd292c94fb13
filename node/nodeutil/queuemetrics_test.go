package nodeutil_test

import (
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics/legacyregistry"
)

// additions is how many keys the process's metrics say the pods' queue has had.
func additions(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "workqueue_adds_total" {
			continue
		}
		for _, metric := range family.Metric {
			if metric.Label[0].GetValue() == "sync_pods_from_kubernetes" {
				return metric.Counter.GetValue()
			}
		}
	}
	return 0
}

func TestQueuesAreInTheProcessMetrics(t *testing.T) {
	t.Run("of a node by itself", func(t *testing.T) {
		before, provider := additions(t), &tiny{}
		_, stop := start(t, fake.NewSimpleClientset(pod("web", "vk")), making(provider))
		eventually(t, "the pod runs", func() bool {
			pods, _ := provider.GetPods(t.Context())
			return len(pods) == 1
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if after := additions(t); after <= before {
			t.Errorf("workqueue_adds_total went from %v to %v, want more", before, after)
		}
	})
	t.Run("of a fleet", func(t *testing.T) {
		before := additions(t)
		fleetBubble(t, func(t *testing.T, r *fleetRig) {
			r.add("a")
			r.create("web", "a")
			r.start()
			pass(10 * time.Second)
			wantNames(t, "pods", r.runs("a"), "web")
		})
		if after := additions(t); after <= before {
			t.Errorf("workqueue_adds_total went from %v to %v, want more", before, after)
		}
	})
}
