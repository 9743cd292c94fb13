package nodeutil

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"

	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// component is what the node calls itself where a kubelet does.
const component = "kubelet"

var reading = []string{http.MethodGet}

// kubeletAPI is all that AttachProviderRoutes serves.
func (n *Node) kubeletAPI(p Provider) http.Handler {
	routes := n.routes(p, n.shared.metrics.registry)
	return n.shared.metrics.requests.counting(routes, api.RoutesHandler(routes))
}

// routes are the endpoints of the kubelet API, each of which has a row in
// docs/kubelet-api.md.
func (n *Node) routes(p Provider, own prometheus.Gatherer) []api.Route {
	config := n.podHandlerConfig(p)
	routes := n.podRoutes(config)
	routes = append(routes, n.healthRoutes()...)
	routes = append(routes, metricsRoutes(own, &volumeMetrics{summary: config.GetStatsSummary})...)
	routes = append(routes, api.Route{Pattern: "/configz", Methods: reading, Handler: serveConfig(&n.cfg)}, n.statusRoute())
	if n.cfg.DebugHTTP {
		routes = append(routes, profileRoutes()...)
	}
	return append(routes, n.pageRoutes(routes)...)
}

// metricsRoutes are those about the process and the node. What its pods use is
// among the routes of the pods, but for that of their volumes, which may be nil.
func metricsRoutes(own prometheus.Gatherer, volumes *volumeMetrics) []api.Route {
	// What could be gathered is worth more than an error about the rest.
	serve := func(g prometheus.Gatherer) http.Handler {
		return metrics.HandlerFor(g, metrics.HandlerOpts{ErrorHandling: metrics.ContinueOnError})
	}
	all := func(w http.ResponseWriter, r *http.Request) {
		ofVolumes := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return volumes.gather(r.Context()), nil })
		// That of the process has what the libraries of Kubernetes register by themselves.
		serve(prometheus.Gatherers{own, legacyregistry.DefaultGatherer, ofVolumes}).ServeHTTP(w, r)
	}
	installed := collected{methods: reading}
	slis.SLIMetrics{}.Install(&installed)
	return append(installed.routes,
		api.Route{Pattern: "/metrics", Methods: reading, Handler: http.HandlerFunc(all)},
		api.Route{Pattern: "/metrics/probes", Methods: reading, Handler: serve(processStart())},
	)
}

// pageRoutes are /statusz, which names the other routes, and /flagz.
func (n *Node) pageRoutes(others []api.Route) []api.Route {
	binary, err := version.Parse(buildinfo.Get().Kubernetes)
	if err != nil {
		binary = version.MajorMinor(0, 0)
	}
	var paths []string
	for _, route := range others {
		paths = append(paths, route.Pattern)
	}
	pages := collected{methods: reading}
	statusz.Install(&pages, component, statusz.NewRegistry(
		compatibility.NewEffectiveVersion(binary, false, version.MajorMinor(0, 0), version.MajorMinor(0, 0)),
		statusz.WithListedPaths(append(paths, flagz.DefaultFlagzPath))))
	flagz.Install(&pages, component, flags(n.cfg.Flags))
	return pages.routes
}

// flags is a flagz.Reader.
type flags map[string]string

func (f flags) GetFlagz() map[string]string { return f }

// profileRoutes are those of net/http/pprof.
func profileRoutes() []api.Route {
	routes := []api.Route{
		{Pattern: "/debug/pprof/{$}", Methods: reading, Handler: http.HandlerFunc(pprof.Index)},
		{Pattern: "/debug/pprof/{profile}", Methods: reading, Handler: http.HandlerFunc(pprof.Index)},
		{Pattern: "/debug/pprof/symbol", Methods: []string{http.MethodGet, http.MethodPost}, Handler: http.HandlerFunc(pprof.Symbol)},
	}
	for name, h := range map[string]http.HandlerFunc{"cmdline": pprof.Cmdline, "profile": pprof.Profile, "trace": pprof.Trace} {
		routes = append(routes, api.Route{Pattern: "/debug/pprof/" + name, Methods: reading, Handler: h})
	}
	return routes
}
