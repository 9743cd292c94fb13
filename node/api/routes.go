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
	// GetContainerLogStream opens the log of one of a container's output
	// streams.
	GetContainerLogStream ContainerLogStreamHandlerFunc
	// GetPods lists the pods that the provider runs.
	GetPods PodListerFunc
	// GetPodsFromKubernetes lists the pods that are bound to the node, with the
	// status that the API has. Where it is nil, /pods answers with GetPods.
	GetPodsFromKubernetes PodListerFunc
	// FindPod finds the pods of the node: requests for logs, exec, attach and
	// port-forward of any other pod are answered with 404 before the provider is
	// asked. Where the provider does not have the log of a container of such a pod, the
	// answer is 400 and why, as a kubelet's. Nil leaves both to the provider.
	FindPod PodFinderFunc
	// GetStatsSummary returns what the node and its pods use.
	GetStatsSummary PodStatsSummaryHandlerFunc
	// GetMetricsResource returns the same as Prometheus metrics. Where it is
	// nil, they are made from GetStatsSummary.
	GetMetricsResource PodMetricsResourceHandlerFunc
	// StreamLimiter limits how many sessions there are at once, also those of other
	// handlers that share it. Nil means one with the default limits.
	StreamLimiter *StreamLimiter
	// StreamIdleTimeout ends an exec, attach or port-forward over which nothing
	// was sent for so long. Zero means four hours.
	StreamIdleTimeout time.Duration
	// StreamCreationTimeout is how long a client may take to open the streams
	// that it announced. Zero means 30 seconds.
	StreamCreationTimeout time.Duration
}

// PodMetricsConfig holds the statistics of a provider. Where GetMetricsResource
// is nil, the resource metrics are made from GetStatsSummary.
type PodMetricsConfig struct {
	GetStatsSummary    PodStatsSummaryHandlerFunc
	GetMetricsResource PodMetricsResourceHandlerFunc
}

// Route is one endpoint of an HTTP API.
type Route struct {
	// Pattern is a pattern of http.ServeMux without a method, such as
	// /pods or /containerLogs/{namespace}/{pod}/{container}.
	Pattern string
	// Methods are those that Handler answers. None means all.
	Methods []string
	// Handler answers.
	Handler http.Handler
}

// RoutesHandler serves the given routes: other paths answer 404, and other
// methods 405 with the header Allow (HEAD too where it is not named, like the
// kubelet). It panics on patterns that are wrong or in conflict, as
// http.ServeMux does.
func RoutesHandler(routes []Route) http.Handler {
	mux := http.NewServeMux()
	for _, route := range routes {
		h := route.Handler
		if len(route.Methods) > 0 {
			h = allow(h, route.Methods...)
		}
		mux.Handle(route.Pattern, h)
	}
	mux.HandleFunc("/", NotFound)
	return mux
}

// PodRoutes returns the routes of PodHandler. The slice is the caller's, so
// that one can add routes, or wrap handlers, before RoutesHandler.
func PodRoutes(p PodHandlerConfig, debug bool) []Route {
	reading := []string{http.MethodGet}
	streaming := []string{http.MethodGet, http.MethodPost}

	pods := p.GetPodsFromKubernetes
	if pods == nil {
		pods = p.GetPods
	}
	podList := HandlePods(pods)
	routes := []Route{
		{"/pods", reading, podList},
		{"/pods/{$}", reading, podList},
	}
	if debug {
		routes = append(routes, Route{"/runningpods/{$}", reading, HandleRunningPods(p.GetPods)})
	}
	limiter := p.StreamLimiter.orDefault()
	options := []ContainerExecHandlerOption{
		WithExecLimiter(limiter),
		WithExecStreamIdleTimeout(p.StreamIdleTimeout),
		WithExecStreamCreationTimeout(p.StreamCreationTimeout),
	}
	ofPod := func(able bool, h http.Handler) http.Handler {
		if !able {
			return h // which answers 501 for any pod
		}
		return RequirePod(p.FindPod, h)
	}
	exec := ofPod(p.RunInContainer != nil, HandleContainerExec(p.RunInContainer, options...))
	attach := ofPod(p.AttachToContainer != nil, HandleContainerAttach(p.AttachToContainer, options...))
	forward := ofPod(p.PortForward != nil, HandlePortForward(p.PortForward,
		WithPortForwardLimiter(limiter),
		WithPortForwardStreamIdleTimeout(p.StreamIdleTimeout),
		WithPortForwardCreationTimeout(p.StreamCreationTimeout)))
	logs := ofPod(p.GetContainerLogs != nil, HandleContainerLogStreams(p.GetContainerLogs, p.GetContainerLogStream,
		WithLogsLimiter(limiter), withLogsPodFinder(p.FindPod)))
	routes = append(routes,
		Route{"/containerLogs/{namespace}/{pod}/{container}", reading, logs},
		Route{"/exec/{namespace}/{pod}/{container}", streaming, exec},
		Route{"/exec/{namespace}/{pod}/{uid}/{container}", streaming, exec},
		Route{"/attach/{namespace}/{pod}/{container}", streaming, attach},
		Route{"/attach/{namespace}/{pod}/{uid}/{container}", streaming, attach},
		Route{"/portForward/{namespace}/{pod}", streaming, forward},
		Route{"/portForward/{namespace}/{pod}/{uid}", streaming, forward},
	)
	routes = append(routes, Route{cadvisorRoute, reading, handleCadvisor(p.GetStatsSummary, pods)})
	routes = append(routes, summaryRoutes(p.GetStatsSummary)...)
	return append(routes, resourceRoutes(resourceMetrics(p.GetMetricsResource, p.GetStatsSummary))...)
}

func summaryRoutes(f PodStatsSummaryHandlerFunc) []Route {
	methods := []string{http.MethodGet, http.MethodPost}
	summary := HandlePodStatsSummary(f)
	return []Route{
		{statsSummaryRoute, methods, summary},
		{statsSummaryRoute + "/{$}", methods, summary},
		{"/stats/", nil, http.HandlerFunc(NotFound)}, // and so /stats is redirected, as the kubelet does
	}
}

func resourceRoutes(f PodMetricsResourceHandlerFunc) []Route {
	methods := []string{http.MethodGet}
	metrics := HandlePodMetricsResource(f)
	return []Route{
		{MetricsResourceRouteSuffix, methods, metrics},
		{MetricsResourceRouteSuffix + "/{$}", methods, metrics},
	}
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
//	/metrics/cadvisor                               made from the summary
//
// Other paths answer 404 and other methods 405. debug switches on the routes
// that show the provider's own view; leave it off where that must stay private.
func PodHandler(p PodHandlerConfig, debug bool) http.Handler {
	return RoutesHandler(PodRoutes(p, debug))
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
	metrics := InstrumentHandler(PodMetricsResourceHandler(resourceMetrics(p.GetMetricsResource, p.GetStatsSummary)))
	mux.Handle(MetricsResourceRouteSuffix, metrics)
	mux.Handle(MetricsResourceRouteSuffix+"/", metrics)
}

// PodStatsSummaryHandler returns a handler that serves f at /stats/summary and
// answers 404 to any other path. A nil f answers 501.
func PodStatsSummaryHandler(f PodStatsSummaryHandlerFunc) http.Handler {
	return RoutesHandler(summaryRoutes(f))
}

// PodMetricsResourceHandler returns a handler that serves f at
// /metrics/resource and answers 404 to any other path. A nil f answers 501.
func PodMetricsResourceHandler(f PodMetricsResourceHandlerFunc) http.Handler {
	return RoutesHandler(resourceRoutes(f))
}
