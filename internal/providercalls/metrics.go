package providercalls

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Metrics counts and times what controllers ask of their providers, and what
// they do for pods. A nil Metrics measures nothing. Make one with NewMetrics; its
// methods are safe for concurrent use.
type Metrics struct {
	calls      *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	workers    *prometheus.HistogramVec
	statusSync prometheus.Histogram
	rivals     prometheus.Counter

	history *history
	running sync.Map // *Log → struct{}: of the controllers that run

	// What is needed each time is looked up once.
	methods    map[string]methodMetrics
	operations map[string]prometheus.Observer
}

// methodMetrics are those of one method of the provider.
type methodMetrics struct {
	succeeded prometheus.Observer
	inFlight  prometheus.Gauge
}

// codeOK is the code of a call that succeeded. That of one that failed is the
// class of its error.
const codeOK = "OK"

// The methods of a provider that are counted.
const (
	CreatePod        = "CreatePod"
	UpdatePod        = "UpdatePod"
	DeletePod        = "DeletePod"
	GetPod           = "GetPod"
	GetPodStatus     = "GetPodStatus"
	GetPods          = "GetPods"
	NotifyPods       = "NotifyPods"
	Ping             = "Ping"
	NotifyNodeStatus = "NotifyNodeStatus"
)

var countedMethods = []string{CreatePod, UpdatePod, DeletePod, GetPod, GetPodStatus,
	GetPods, NotifyPods, Ping, NotifyNodeStatus}

// podMethods are those about pods, which may hang.
var podMethods = []string{CreatePod, UpdatePod, DeletePod, GetPod, GetPodStatus, GetPods}

// The kinds of work on a pod, as a kubelet has them.
const (
	OperationCreate = "create"
	OperationUpdate = "update"
	OperationKill   = "kill"
	OperationSync   = "sync"
)

// NewMetrics makes a Metrics that has measured nothing yet.
func NewMetrics() *Metrics {
	m := &Metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "vk_provider_call_duration_seconds",
			Help:    "Duration in seconds of calls of the provider, by method and by the class of the error (package errdefs), or OK.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}}, []string{"method", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vk_provider_calls_in_flight",
			Help: "Number of calls of the provider that have not returned yet, by method."}, []string{"method"}),
		workers: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_worker_duration_seconds",
			Help: "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync"}, []string{"operation_type"}),
		statusSync: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_status_sync_duration_seconds",
			Help:    "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
			Buckets: []float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60}}),
		rivals: prometheus.NewCounter(prometheus.CounterOpts{Name: "vk_node_rivals_total",
			Help: "Number of other processes that were seen to act for a node of this process, or to have taken it."}),
		history:    newHistory(),
		methods:    map[string]methodMetrics{},
		operations: map[string]prometheus.Observer{},
	}
	for _, method := range countedMethods {
		m.methods[method] = methodMetrics{m.calls.WithLabelValues(method, codeOK), m.inFlight.WithLabelValues(method)}
	}
	for _, operation := range []string{OperationCreate, OperationUpdate, OperationKill, OperationSync} {
		m.operations[operation] = m.workers.WithLabelValues(operation)
	}
	return m
}

var _ prometheus.Collector = (*Metrics)(nil)

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.inFlight, m.workers, m.statusSync, m.rivals}
}

// longestCall is computed when it is read.
var longestCall = prometheus.NewDesc("vk_provider_longest_call_seconds",
	"Age in seconds of the call of the provider that has been running for the longest time and has not returned yet, by method; 0 if there is none.",
	[]string{"method"}, nil)

// Watch has the calls of a controller that runs measured, until it calls undo.
func (m *Metrics) Watch(calls *Log) (undo func()) {
	if m == nil {
		return func() {}
	}
	m.running.Store(calls, struct{}{})
	return func() { m.running.Delete(calls) }
}

// CollectLongest measures the calls that have not returned yet.
func (m *Metrics) CollectLongest(found chan<- prometheus.Metric) {
	longest := map[string]time.Duration{}
	m.running.Range(func(key, _ any) bool {
		for _, c := range key.(*Log).List() {
			longest[c.Method] = max(longest[c.Method], time.Since(c.Since))
		}
		return true
	})
	for _, method := range podMethods {
		found <- prometheus.MustNewConstMetric(longestCall, prometheus.GaugeValue, longest[method].Seconds(), method)
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- longestCall
	for _, c := range m.collectors() {
		c.Describe(descs)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(found chan<- prometheus.Metric) {
	m.CollectLongest(found)
	for _, c := range m.collectors() {
		c.Collect(found)
	}
}

// Begins records that a method of the provider is being called, and returns
// when. Ended has to follow.
func (m *Metrics) Begins(method string) time.Time {
	if m == nil {
		return time.Time{}
	}
	m.methods[method].inFlight.Inc()
	return time.Now()
}

// Ended records how a call ended that began at the given time.
func (m *Metrics) Ended(method string, begin time.Time, err error) {
	if m == nil {
		return
	}
	ours := m.methods[method]
	ours.inFlight.Dec()
	took := ours.succeeded
	if err != nil {
		took = m.calls.WithLabelValues(method, string(errdefs.ClassOf(err)))
	}
	took.Observe(time.Since(begin).Seconds())
	m.history.record(method, begin, err)
}

// Worked records that a visit of a pod has ended, which did the given kind of work.
func (m *Metrics) Worked(operation string, begin time.Time) {
	if m != nil {
		m.operations[operation].Observe(time.Since(begin).Seconds())
	}
}

// StatusWritten records that the API has a status which was new at the given time.
func (m *Metrics) StatusWritten(since time.Time) {
	if m != nil && !since.IsZero() {
		m.statusSync.Observe(time.Since(since).Seconds())
	}
}

// RivalsSeen counts other processes that act for a node of this one.
func (m *Metrics) RivalsSeen(n int64) {
	if m != nil {
		m.rivals.Add(float64(n))
	}
}
