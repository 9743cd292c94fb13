package queuemetrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // as a program registers them

	"github.com/virtual-kubelet/virtual-kubelet/node/queuemetrics"
)

// A page with the metrics of client-go's queues and of those measured with New has
// each of the names once, and both queues.
func TestMetricsBesideClientGos(t *testing.T) {
	registry := prometheus.NewRegistry()
	provider := queuemetrics.New(registry)
	clientGo := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "another"})
	defer clientGo.ShutDown()
	clientGo.Add("a")

	provider.NewDepthMetric("queue").Inc()
	provider.NewAddsMetric("queue").Inc()
	provider.NewRetriesMetric("queue").Inc()
	provider.NewUnfinishedWorkSecondsMetric("queue").Set(3)
	provider.NewLongestRunningProcessorSecondsMetric("queue").Set(2)
	provider.NewLatencyMetric("queue").Observe(5)
	provider.NewWorkDurationMetric("queue").Observe(7)

	families, err := prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			if len(metric.Label) != 1 || metric.Label[0].GetName() != "name" {
				continue
			}
			got[family.GetName()+" of "+metric.Label[0].GetValue()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + metric.GetHistogram().GetSampleSum()
		}
	}
	for name, want := range map[string]float64{
		"workqueue_depth of queue": 1, "workqueue_adds_total of queue": 1, "workqueue_retries_total of queue": 1,
		"workqueue_unfinished_work_seconds of queue": 3, "workqueue_longest_running_processor_seconds of queue": 2,
		"workqueue_queue_duration_seconds of queue": 5, "workqueue_work_duration_seconds of queue": 7,
		"workqueue_depth of another": 1, "workqueue_adds_total of another": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
