package nodeutil

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
)

// startMetrics are about how pods start.
type startMetrics struct {
	started  prometheus.Counter
	duration prometheus.Histogram
	total    prometheus.Histogram

	mu      sync.Mutex
	waiting map[types.UID]time.Time // pods that have not started, and since when they are known
}

func newStartMetrics() *startMetrics {
	buckets := prometheus.ExponentialBuckets(0.25, 2, 14) // to 34 minutes
	return &startMetrics{
		waiting: map[types.UID]time.Time{},
		started: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_total",
			Help: "[ALPHA] Cumulative number of pods started"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_duration_seconds", Buckets: buckets,
			Help: "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run"}),
		total: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_total_duration_seconds", Buckets: buckets,
			Help: "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch"}),
	}
}

var oldestPendingDesc = prometheus.NewDesc("vk_oldest_pending_pod_age_seconds",
	"For how long the pod is known, in seconds, that waits longest to start; 0 if none does.", nil, nil)

func (m *startMetrics) Describe(descs chan<- *prometheus.Desc) {
	m.started.Describe(descs)
	m.duration.Describe(descs)
	m.total.Describe(descs)
	descs <- oldestPendingDesc
}

func (m *startMetrics) Collect(found chan<- prometheus.Metric) {
	m.started.Collect(found)
	m.duration.Collect(found)
	m.total.Collect(found)
	found <- prometheus.MustNewConstMetric(oldestPendingDesc, prometheus.GaugeValue, m.longestWait().Seconds())
}

func (m *startMetrics) longestWait() (longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, since := range m.waiting {
		longest = max(longest, time.Since(since))
	}
	return longest
}

// watch measures how long the pods of a node take to start, until end is called.
func (m *startMetrics) watch(pods *podwatch.Pods) (end func()) {
	_, end, _ = pods.Subscribe(cache.ResourceEventHandlerFuncs{
		AddFunc: m.observe,
		UpdateFunc: func(before, obj any) {
			if replaced(before, obj) {
				m.forget(before)
			}
			m.observe(obj)
		},
		DeleteFunc: m.forget,
	})
	return end
}

// observe records when a pod is first seen, and when it has started.
func (m *startMetrics) observe(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	since, waits := m.waiting[pod.UID]
	switch pod.Status.Phase {
	case corev1.PodPending, "":
		if !waits {
			m.waiting[pod.UID] = time.Now()
		}
	case corev1.PodRunning, corev1.PodSucceeded:
		if waits {
			delete(m.waiting, pod.UID)
			m.started.Inc()
			m.duration.Observe(time.Since(since).Seconds())
			m.total.Observe(time.Since(pod.CreationTimestamp.Time).Seconds())
		}
	default:
		delete(m.waiting, pod.UID) // it has failed, and may never have started
	}
}

// replaced reports whether another pod has taken the name of one, whose end was in a
// gap of the watch.
func replaced(before, after any) bool {
	was, ok1 := before.(*corev1.Pod)
	is, ok2 := after.(*corev1.Pod)
	return ok1 && ok2 && was.UID != is.UID
}

func (m *startMetrics) forget(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.waiting, pod.UID)
	}
}
