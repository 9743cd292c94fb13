package api

import (
	"net/http"
	"time"
)

// MetricsResourceRouteSuffix is the path of the resource metrics.
const MetricsResourceRouteSuffix = "/metrics/resource"

const statsSummaryRoute = "/stats/summary"

// ServeMux is what the Attach functions need of a router. *http.ServeMux is
// one; a pattern that ends in a slash must match all paths below it.
type ServeMux interface {
	Handle(path string, h http.Handler)
}

// PodHandlerConfig holds what a provider can do. A function that is nil answers
// 501. The functions are called concurrently.
type PodHandlerConfig struct {
	// RunInContainer runs a command in a container (kubectl exec, cp).
	RunInContainer ContainerExecHandlerFunc
	// AttachToContainer attaches to a container's main process.
	AttachToContainer ContainerAttachHandlerFunc
	// PortForward connects to a port of a pod.
	PortForward PortForwardHandlerFunc
	// GetContainerLogs opens a container's log.
	GetContainerLogs ContainerLogsHandlerFunc
	// GetPods lists the pods that the provider runs.
	GetPods PodListerFunc
	// GetPodsFromKubernetes lists the pods that are bound to the node, with the
	// status that the API has. Where it is nil, /pods answers with GetPods.
	GetPodsFromKubernetes PodListerFunc
	// GetStatsSummary returns what the node and its pods use.
	GetStatsSummary PodStatsSummaryHandlerFunc
	// GetMetricsResource returns the same as Prometheus metrics.
	GetMetricsResource PodMetricsResourceHandlerFunc
	// StreamIdleTimeout ends an exec, attach or port-forward over which nothing
	// was sent for so long. Zero means four hours.
	StreamIdleTimeout time.Duration
	// StreamCreationTimeout is how long a client may take to open the streams
	// that it announced. Zero means 30 seconds.
	StreamCreationTimeout time.Duration
}

// PodMetricsConfig holds the statistics of a provider.
type PodMetricsConfig struct {
	GetStatsSummary    PodStatsSummaryHandlerFunc
	GetMetricsResource PodMetricsResourceHandlerFunc
}

// PodHandler returns a handler with all routes of this package:
//
//	/pods                                           the pods bound to the node
//	/runningpods/                                   the pods that run (with debug)
//	/containerLogs/{namespace}/{pod}/{container}
//	/exec/{namespace}/{pod}[/{uid}]/{container}
//	/attach/{namespace}/{pod}[/{uid}]/{container}
//	/portForward/{namespace}/{pod}[/{uid}]
//	/stats/summary
//	/metrics/resource
//
// Other paths answer 404 and other methods 405. debug switches on the routes
// that show the provider's own view; leave it off where that must stay private.
func PodHandler(p PodHandlerConfig, debug bool) http.Handler {
	mux := http.NewServeMux()
	get := func(h http.Handler, patterns ...string) {
		for _, pattern := range patterns {
			mux.Handle(pattern, allow(h, http.MethodGet))
		}
	}
	stream := func(h http.Handler, patterns ...string) {
		for _, pattern := range patterns {
			mux.Handle(pattern, allow(h, http.MethodGet, http.MethodPost))
		}
	}

	pods := p.GetPodsFromKubernetes
	if pods == nil {
		pods = p.GetPods
	}
	get(HandlePods(pods), "/pods", "/pods/{$}")
	if debug {
		get(HandleRunningPods(p.GetPods), "/runningpods/{$}")
	}
	get(HandleContainerLogs(p.GetContainerLogs), "/containerLogs/{namespace}/{pod}/{container}")

	execOptions := []ContainerExecHandlerOption{
		WithExecStreamIdleTimeout(p.StreamIdleTimeout),
		WithExecStreamCreationTimeout(p.StreamCreationTimeout),
	}
	stream(HandleContainerExec(p.RunInContainer, execOptions...),
		"/exec/{namespace}/{pod}/{container}", "/exec/{namespace}/{pod}/{uid}/{container}")
	stream(HandleContainerAttach(p.AttachToContainer, execOptions...),
		"/attach/{namespace}/{pod}/{container}", "/attach/{namespace}/{pod}/{uid}/{container}")
	stream(HandlePortForward(p.PortForward,
		WithPortForwardStreamIdleTimeout(p.StreamIdleTimeout),
		WithPortForwardCreationTimeout(p.StreamCreationTimeout)),
		"/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}")

	attachStats(PodMetricsConfig{p.GetStatsSummary, p.GetMetricsResource}, mux)
	mux.HandleFunc("/", NotFound)
	return mux
}

// AttachPodRoutes adds PodHandler, instrumented, to mux as its root: what mux
// has other patterns for stays with those.
func AttachPodRoutes(p PodHandlerConfig, mux ServeMux, debug bool) {
	mux.Handle("/", InstrumentHandler(PodHandler(p, debug)))
}

// AttachPodMetricsRoutes adds /stats/summary and /metrics/resource,
// instrumented, to mux.
func AttachPodMetricsRoutes(p PodMetricsConfig, mux ServeMux) {
	summary := InstrumentHandler(PodStatsSummaryHandler(p.GetStatsSummary))
	mux.Handle(statsSummaryRoute, summary)
	mux.Handle(statsSummaryRoute+"/", summary)
	metrics := InstrumentHandler(PodMetricsResourceHandler(p.GetMetricsResource))
	mux.Handle(MetricsResourceRouteSuffix, metrics)
	mux.Handle(MetricsResourceRouteSuffix+"/", metrics)
}

// PodStatsSummaryHandler returns a handler that serves f at /stats/summary and
// answers 404 to any other path. A nil f answers 501.
func PodStatsSummaryHandler(f PodStatsSummaryHandlerFunc) http.Handler {
	mux := http.NewServeMux()
	attachSummary(f, mux)
	mux.HandleFunc("/", NotFound)
	return mux
}

// PodMetricsResourceHandler returns a handler that serves f at
// /metrics/resource and answers 404 to any other path. A nil f answers 501.
func PodMetricsResourceHandler(f PodMetricsResourceHandlerFunc) http.Handler {
	mux := http.NewServeMux()
	attachMetrics(f, mux)
	mux.HandleFunc("/", NotFound)
	return mux
}

func attachStats(p PodMetricsConfig, mux *http.ServeMux) {
	attachSummary(p.GetStatsSummary, mux)
	attachMetrics(p.GetMetricsResource, mux)
}

func attachSummary(f PodStatsSummaryHandlerFunc, mux *http.ServeMux) {
	h := allow(HandlePodStatsSummary(f), http.MethodGet, http.MethodPost)
	mux.Handle(statsSummaryRoute, h)
	mux.Handle(statsSummaryRoute+"/{$}", h)
	mux.HandleFunc("/stats/", NotFound) // and so /stats is redirected, as the kubelet does
}

func attachMetrics(f PodMetricsResourceHandlerFunc, mux *http.ServeMux) {
	h := allow(HandlePodMetricsResource(f), http.MethodGet)
	mux.Handle(MetricsResourceRouteSuffix, h)
	mux.Handle(MetricsResourceRouteSuffix+"/{$}", h)
}
