package nodeutil

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/internal/pendingconns"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// requestMetrics are about the requests to the kubelet API.
type requestMetrics struct {
	total     *prometheus.CounterVec
	durations *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
}

func newRequestMetrics() *requestMetrics {
	labels := []string{"method", "path", "server_type", "long_running"}
	return &requestMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_http_requests_total",
			Help: "[ALPHA] Number of the http requests received since the server started"}, labels),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_http_requests_duration_seconds",
			Help: "[ALPHA] Duration in seconds to serve http requests"}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_http_inflight_requests",
			Help: "[ALPHA] Number of the inflight http requests"}, labels),
	}
}

func (m *requestMetrics) Describe(descs chan<- *prometheus.Desc) {
	m.total.Describe(descs)
	m.durations.Describe(descs)
	m.inFlight.Describe(descs)
}

func (m *requestMetrics) Collect(found chan<- prometheus.Metric) {
	m.total.Collect(found)
	m.durations.Collect(found)
	m.inFlight.Collect(found)
}

// longRunning are the routes whose requests last as long as their users like.
var longRunning = map[string]bool{"exec": true, "attach": true, "portForward": true, "debug": true}

// counting counts and times the requests to h. What no route is for counts as
// "other", and so do methods that HTTP does not have, lest anybody can make any
// number of metrics.
func (m *requestMetrics) counting(routes []api.Route, h http.Handler) http.Handler {
	known := map[string]bool{}
	for _, route := range routes {
		known[firstPart(route.Pattern)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pendingconns.Admit(r.Context()) // the request was authorized
		path, method := firstPart(r.URL.Path), r.Method
		if !known[path] {
			path = "other"
		}
		if verbs[method] == "" {
			method = "other"
		}
		labels := []string{method, path, "readwrite", strconv.FormatBool(longRunning[path])}
		m.total.WithLabelValues(labels...).Inc()
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
