package queuemetrics_test

import (
	"testing"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // as a program registers them

	"github.com/virtual-kubelet/virtual-kubelet/node/queuemetrics"
)

// Queues of client-go and those measured with Provider are in the same series, each
// of which the registry has once.
func TestProviderSharesClientGosMetrics(t *testing.T) {
	provider := queuemetrics.Provider()
	clientGo := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "queue"})
	defer clientGo.ShutDown()
	clientGo.Add("a")

	provider.NewDepthMetric("queue").Inc()
	provider.NewAddsMetric("queue").Inc()
	provider.NewRetriesMetric("queue").Inc()
	provider.NewUnfinishedWorkSecondsMetric("queue").Set(3)
	provider.NewLongestRunningProcessorSecondsMetric("queue").Set(2)
	provider.NewLatencyMetric("queue").Observe(5)
	provider.NewWorkDurationMetric("queue").Observe(7)

	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			if len(metric.Label) != 1 || metric.Label[0].GetValue() != "queue" {
				continue
			}
			if _, twice := got[family.GetName()]; twice {
				t.Errorf("%s is there twice", family.GetName())
			}
			got[family.GetName()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + metric.GetHistogram().GetSampleSum()
		}
	}
	for name, want := range map[string]float64{
		"workqueue_depth": 2, "workqueue_adds_total": 2, "workqueue_retries_total": 1,
		"workqueue_unfinished_work_seconds": 3, "workqueue_longest_running_processor_seconds": 2,
		"workqueue_queue_duration_seconds": 5, "workqueue_work_duration_seconds": 7,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
