// Package queuemetrics shows the work queues of package node in the metrics of
// the process, k8s.io/component-base's legacyregistry, beside those of client-go
// and under the same names (workqueue_*). Package nodeutil uses it for its
// nodes; a program that makes its PodControllers itself passes Provider to
// node.WithQueueMetrics.
package queuemetrics

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Provider returns the provider of the process's metrics of queues. They are
// registered with the first queue, and not before: then a program that imports
// k8s.io/component-base/metrics/prometheus/workqueue has registered client-go's,
// which are used then.
func Provider() workqueue.MetricsProvider { return provider{} }

type provider struct{}

func (provider) NewDepthMetric(name string) workqueue.GaugeMetric {
	return registeredOnce().depth.WithLabelValues(name)
}

func (provider) NewAddsMetric(name string) workqueue.CounterMetric {
	return registeredOnce().adds.WithLabelValues(name)
}

func (provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return registeredOnce().latency.WithLabelValues(name)
}

func (provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return registeredOnce().workDuration.WithLabelValues(name)
}

func (provider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return registeredOnce().unfinished.WithLabelValues(name)
}

func (provider) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return registeredOnce().longest.WithLabelValues(name)
}

func (provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return registeredOnce().retries.WithLabelValues(name)
}

// vectors are the process's: client-go's, where they are registered, else our
// own of the same names. client-go keeps to itself what was registered with it,
// but the registry returns it.
type vectors struct {
	depth, unfinished, longest *metrics.GaugeVec
	adds, retries              *metrics.CounterVec
	latency, workDuration      *metrics.HistogramVec
}

var registeredOnce = sync.OnceValue(func() *vectors {
	buckets := metrics.ExponentialBuckets(10e-9, 10, 10)
	return &vectors{
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
