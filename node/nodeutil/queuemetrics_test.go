package nodeutil_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"
)

const queueOfPods = `{name="sync_pods_from_kubernetes"}`

// A node's metrics have its queues, and not those of other nodes in the process.
func TestQueuesAreInTheMetrics(t *testing.T) {
	t.Run("of a node by itself", func(t *testing.T) {
		busy, idle := http.NewServeMux(), http.NewServeMux()
		start(t, fake.NewSimpleClientset(pod("web", "vk")), making(&tiny{}), openTo(busy))
		start(t, fake.NewSimpleClientset(), making(&tiny{}), openTo(idle))
		eventually(t, "the pod is seen to start", func() bool {
			return strings.Contains(scrape(t, busy, "/metrics"), "\nkubelet_started_pods_total 1\n")
		})
		none := "\nworkqueue_adds_total" + queueOfPods + " 0\n"
		if text := scrape(t, busy, "/metrics"); !strings.Contains(text, "\nworkqueue_adds_total"+queueOfPods) || strings.Contains(text, none) {
			t.Errorf("no key was added to the queue of the node with a pod:\n%s", text)
		}
		wantLines(t, scrape(t, idle, "/metrics"), none[1:len(none)-1])
	})
	t.Run("of a fleet", func(t *testing.T) {
		fleetBubble(t, func(t *testing.T, r *fleetRig) {
			r.add("a")
			r.create("web", "a")
			r.start()
			pass(10 * time.Second)
			wantNames(t, "pods", r.runs("a"), "web")
			families, err := r.fleet.Metrics().(prometheus.Gatherer).Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				if family.GetName() == "workqueue_adds_total" {
					for _, metric := range family.Metric {
						if metric.Label[0].GetValue() == "sync_pods_from_kubernetes" && metric.Counter.GetValue() > 0 {
							return
						}
					}
				}
			}
			t.Error("no key was added to the queue of the fleet's pods")
		})
	})
}
