package vkubelet

import (
	"net/http"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// ServeMux is what the Attach functions need of a router. *http.ServeMux is one.
type ServeMux = api.ServeMux

// AttachPodRoutes adds PodHandler, instrumented, to mux as its root: what mux
// has other patterns for stays with those. Where there is a Server,
// Server.AttachPodRoutes is the better choice: it knows the node's pods.
func AttachPodRoutes(p Provider, mux ServeMux) {
	api.AttachPodRoutes(handlerConfig(p), mux, true)
}

// AttachMetricsRoutes adds /stats/summary and /metrics/resource, instrumented,
// to mux. They are among the routes of PodHandler too; this is for a listener
// that serves nothing else.
func AttachMetricsRoutes(p Provider, mux ServeMux) {
	api.AttachPodMetricsRoutes(metricsConfig(p), mux)
}

// PodHandler returns a handler with the kubelet's routes that are about pods
// (see api.PodHandler), /runningpods/ included. Those for which p lacks the
// optional interface answer 501. Authentication is left to the caller, and so is
// whether p has the pod of a request, and the node that pod: see Server.PodHandler.
func PodHandler(p Provider) http.Handler {
	return api.PodHandler(handlerConfig(p), true)
}

// MetricsSummaryHandler returns a handler that serves what p uses at
// /stats/summary, with 501 if p is no PodMetricsProvider, and answers 404 to any
// other path.
func MetricsSummaryHandler(p Provider) http.Handler {
	return api.PodStatsSummaryHandler(metricsConfig(p).GetStatsSummary)
}

// InstrumentHandler gives each request a span, a logger and a recovery from
// panics; see api.InstrumentHandler.
func InstrumentHandler(h http.Handler) http.Handler { return api.InstrumentHandler(h) }

// NotFound answers 404.
func NotFound(w http.ResponseWriter, r *http.Request) { api.NotFound(w, r) }

// NotImplemented answers 501.
func NotImplemented(w http.ResponseWriter, r *http.Request) { api.NotImplemented(w, r) }
