package queue

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// metricsOfQueues are the process's: those of client-go's queues, where
// k8s.io/component-base/metrics/prometheus/workqueue has registered them, else
// our own of the same names. client-go keeps to itself what was registered with
// it, but the registry tells.
type metricsOfQueues struct {
	depth, unfinished, longest *metrics.GaugeVec
	adds, retries              *metrics.CounterVec
	latency, workDuration      *metrics.HistogramVec
}

// processMetrics registers the metrics when the first pool is made, and not
// before: then whoever imports client-go's has done so.
var processMetrics = sync.OnceValue(func() *metricsOfQueues {
	buckets := metrics.ExponentialBuckets(10e-9, 10, 10)
	return &metricsOfQueues{
		depth: gauge("depth", "Current depth of workqueue"),
		unfinished: gauge("unfinished_work_seconds", "How many seconds of work has done that is in progress and hasn't been observed by work_duration. "+
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases."),
		longest:      gauge("longest_running_processor_seconds", "How many seconds has the longest running processor for workqueue been running."),
		adds:         counter("adds_total", "Total number of adds handled by workqueue"),
		retries:      counter("retries_total", "Total number of retries handled by workqueue"),
		latency:      histogram("queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested.", buckets),
		workDuration: histogram("work_duration_seconds", "How long in seconds processing an item from workqueue takes.", buckets),
	}
})

const subsystem = "workqueue"

var byName = []string{"name"}

func gauge(name, help string) *metrics.GaugeVec {
	return registered(metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.BETA}, byName))
}

func counter(name, help string) *metrics.CounterVec {
	return registered(metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.BETA}, byName))
}

func histogram(name, help string, buckets []float64) *metrics.HistogramVec {
	return registered(metrics.NewHistogramVec(&metrics.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.BETA}, byName))
}

// registered returns the metric that is registered under the name of this one.
// Where that is another one altogether this one is not shown.
func registered[T metrics.Registerable](metric T) T {
	var already prometheus.AlreadyRegisteredError
	if errors.As(legacyregistry.Register(metric), &already) {
		if existing, ok := already.ExistingCollector.(T); ok {
			return existing
		}
	}
	return metric
}
