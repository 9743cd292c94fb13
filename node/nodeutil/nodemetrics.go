package nodeutil

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// nodeMetrics are a node's own metrics, under the kubelet's names. Those of the
// process are in the registry that all Kubernetes components share; these are
// not, since one process may run several nodes.
type nodeMetrics struct {
	registry *prometheus.Registry

	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec

	started       prometheus.Counter
	startDuration prometheus.Histogram
	startTotal    prometheus.Histogram

	mu      sync.Mutex
	waiting map[types.UID]time.Time // pods that have not started, and since when they are known
}

func newNodeMetrics(name string, pods corev1listers.PodLister) *nodeMetrics {
	request := []string{"method", "path", "server_type", "long_running"}
	startBuckets := prometheus.ExponentialBuckets(0.25, 2, 14) // to 34 minutes
	m := &nodeMetrics{
		registry: prometheus.NewRegistry(),
		waiting:  map[types.UID]time.Time{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_http_requests_total",
			Help: "[ALPHA] Number of the http requests received since the server started"}, request),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_http_requests_duration_seconds",
			Help: "[ALPHA] Duration in seconds to serve http requests"}, request),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_http_inflight_requests",
			Help: "[ALPHA] Number of the inflight http requests"}, request),
		started: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_total",
			Help: "[ALPHA] Cumulative number of pods started"}),
		startDuration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_duration_seconds", Buckets: startBuckets,
			Help: "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run"}),
		startTotal: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_total_duration_seconds", Buckets: startBuckets,
			Help: "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch"}),
	}
	nodeName := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_node_name", Help: "[ALPHA] The node's name. The count is always 1.",
		ConstLabels: prometheus.Labels{"node": name}})
	nodeName.Set(1)
	m.registry.MustRegister(m.requests, m.durations, m.inFlight, m.started, m.startDuration, m.startTotal, nodeName, runningPods{pods})
	return m
}

// watch measures how long pods take to start. An informer that has been stopped
// has no more pods to watch.
func (m *nodeMetrics) watch(pods cache.SharedInformer) {
	_, _ = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { m.follow(obj) },
		UpdateFunc: func(_, obj any) { m.follow(obj) },
		DeleteFunc: m.forget,
	})
}

// follow notes when a pod is first seen, and when it has started.
func (m *nodeMetrics) follow(obj any) {
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
			m.startDuration.Observe(time.Since(since).Seconds())
			m.startTotal.Observe(time.Since(pod.CreationTimestamp.Time).Seconds())
		}
	default:
		delete(m.waiting, pod.UID) // it has failed, and may never have started
	}
}

func (m *nodeMetrics) forget(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.waiting, pod.UID)
	}
}

// longRunning are the routes whose requests last as long as their users like.
var longRunning = map[string]bool{"exec": true, "attach": true, "portForward": true, "debug": true}

// counting counts and times the requests to h. What no route is for counts as
// "other", and so do methods that HTTP does not have, lest anybody can make any
// number of metrics.
func (m *nodeMetrics) counting(routes []api.Route, h http.Handler) http.Handler {
	known := map[string]bool{}
	for _, route := range routes {
		known[firstPart(route.Pattern)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, method := firstPart(r.URL.Path), r.Method
		if !known[path] {
			path = "other"
		}
		if verbs[method] == "" {
			method = "other"
		}
		labels := []string{method, path, "readwrite", strconv.FormatBool(longRunning[path])}
		m.requests.WithLabelValues(labels...).Inc()
		inFlight := m.inFlight.WithLabelValues(labels...)
		inFlight.Inc()
		defer inFlight.Dec()
		begin := time.Now()
		defer func() { m.durations.WithLabelValues(labels...).Observe(time.Since(begin).Seconds()) }()
		h.ServeHTTP(w, r)
	})
}

// firstPart is the first part of a path, or of those below /metrics both, as
// the kubelet has them in its metrics.
func firstPart(path string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	if parts[0] == "metrics" && len(parts) > 1 && parts[1] != "" {
		return "metrics/" + parts[1]
	}
	return parts[0]
}

// runningPods is a collector of what the node's pods are at.
type runningPods struct{ pods corev1listers.PodLister }

var (
	runningPodsDesc = prometheus.NewDesc("kubelet_running_pods",
		"[ALPHA] Number of pods that have a running pod sandbox", nil, nil)
	runningContainersDesc = prometheus.NewDesc("kubelet_running_containers",
		"[ALPHA] Number of containers currently running", []string{"container_state"}, nil)
)

func (runningPods) Describe(descs chan<- *prometheus.Desc) {
	descs <- runningPodsDesc
	descs <- runningContainersDesc
}

func (c runningPods) Collect(found chan<- prometheus.Metric) {
	pods, err := c.pods.List(everything)
	if err != nil {
		found <- prometheus.NewInvalidMetric(runningPodsDesc, err)
		return
	}
	var running, runningContainers, exited float64
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodRunning {
			running++
		}
		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
			for i := range statuses {
				switch state := &statuses[i].State; {
				case state.Running != nil:
					runningContainers++
				case state.Terminated != nil:
					exited++
				}
			}
		}
	}
	found <- prometheus.MustNewConstMetric(runningPodsDesc, prometheus.GaugeValue, running)
	found <- prometheus.MustNewConstMetric(runningContainersDesc, prometheus.GaugeValue, runningContainers, "running")
	found <- prometheus.MustNewConstMetric(runningContainersDesc, prometheus.GaugeValue, exited, "exited")
}

// processStart tells only when the process started.
func processStart() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "process_start_time_seconds",
		Help: "[ALPHA] Start time of the process since unix epoch in seconds."}, func() float64 {
		start, _ := metrics.GetProcessStart()
		return start
	}))
	return registry
}
