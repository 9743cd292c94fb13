// Package queuemetrics measures the work queues of package node as client-go measures
// its own, under the same names (workqueue_*). Package nodeutil uses it for its nodes; a
// program that makes its PodControllers itself passes New to node.WithQueueMetrics.
package queuemetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// New returns metrics of queues, which it registers. Queues that share a registry share
// the metrics: a second New for it panics. A page that shows client-go's, too, gathers
// both, and so each of the names once.
func New(registry prometheus.Registerer) workqueue.MetricsProvider {
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 10)
	p := &provider{
		depth: gauge("depth", "Current depth of workqueue"),
		unfinished: gauge("unfinished_work_seconds", "How many seconds of work has done that is in progress and hasn't been observed by work_duration. "+
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases."),
		longest:      gauge("longest_running_processor_seconds", "How many seconds has the longest running processor for workqueue been running."),
		adds:         counter("adds_total", "Total number of adds handled by workqueue"),
		retries:      counter("retries_total", "Total number of retries handled by workqueue"),
		latency:      histogram("queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested.", buckets),
		workDuration: histogram("work_duration_seconds", "How long in seconds processing an item from workqueue takes.", buckets),
	}
	registry.MustRegister(p.depth, p.unfinished, p.longest, p.adds, p.retries, p.latency, p.workDuration)
	return p
}

type provider struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, workDuration      *prometheus.HistogramVec
}

func (p *provider) NewDepthMetric(name string) workqueue.GaugeMetric {
	return p.depth.WithLabelValues(name)
}

func (p *provider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.adds.WithLabelValues(name)
}

func (p *provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.latency.WithLabelValues(name)
}

func (p *provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.workDuration.WithLabelValues(name)
}

func (p *provider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.unfinished.WithLabelValues(name)
}

func (p *provider) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.longest.WithLabelValues(name)
}

func (p *provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.retries.WithLabelValues(name)
}

const (
	subsystem = "workqueue"
	// Texts that differed from client-go's would keep the two apart.
	stability = "[BETA] "
)

var byName = []string{"name"}

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: stability + help}, byName)
}

func counter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: stability + help}, byName)
}

func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: stability + help, Buckets: buckets}, byName)
}
