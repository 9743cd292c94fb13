package nodeutil

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// ServeHTTP answers the kubelet API of all nodes.
func (f *Fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n := f.nodeOf(r); n != nil && n.cfg.Handler != nil {
		n.cfg.Handler.ServeHTTP(w, r)
		return
	}
	f.own.ServeHTTP(w, r)
}

// nodeOf returns the node that a request is about, or nil if the request does not identify it.
func (f *Fleet) nodeOf(r *http.Request) *Node {
	if r.TLS != nil {
		if n := f.named(r.TLS.ServerName); n != nil {
			return n
		}
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if n := f.named(host); n != nil {
		return n
	}
	if namespace, pod, ok := podIn(r.URL.Path); ok {
		if name, found := f.shared.pods.Find(namespace, pod); found {
			return f.Node(name)
		}
	}
	return nil
}

// named returns the node with a name, or with an address that is that name.
func (f *Fleet) named(host string) *Node {
	if host == "" || net.ParseIP(host) != nil {
		return nil
	}
	if n := f.Node(host); n != nil {
		return n
	}
	for _, n := range f.Nodes() {
		for _, address := range n.endpoint.addresses() {
			if strings.EqualFold(address.Address, host) {
				return n
			}
		}
	}
	return nil
}

// podRoutes are those whose paths go on with the namespace and the name of a pod.
var podRoutes = map[string]bool{"containerLogs": true, "exec": true, "attach": true, "portForward": true}

func podIn(path string) (namespace, pod string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) < 3 || !podRoutes[parts[0]] {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// ProcessHandler answers what is about the process, such as /healthz and
// /metrics, to everybody; what is about a node it refuses with 421.
func (f *Fleet) ProcessHandler() http.Handler {
	routes := append(f.healthRoutes(), metricsRoutes(prometheus.Gatherer(f.shared.metrics.registry), nil)...)
	if f.cfg.DebugHTTP {
		routes = append(routes, profileRoutes()...)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.HandlerFunc(misdirected))
	known := api.RoutesHandler(routes)
	for _, route := range routes {
		mux.Handle(route.Pattern, known)
	}
	return f.shared.metrics.requests.counting(routes, mux)
}

func misdirected(w http.ResponseWriter, r *http.Request) {
	reason := "the request does not come under the name of a node"
	if namespace, pod, ok := podIn(r.URL.Path); ok {
		reason = fmt.Sprintf("no node here has the pod %s/%s", namespace, pod)
	}
	http.Error(w, "Many nodes are served on this port, and the request does not identify one: "+reason+
		". Use the node's name as host, or have each node served on a port of its own.", http.StatusMisdirectedRequest)
}

// healthRoutes are /healthz, /livez and /readyz of all nodes together.
func (f *Fleet) healthRoutes() []api.Route {
	living := []healthz.HealthChecker{healthz.PingHealthz, healthz.NamedCheck("log", new(logCheck).check)}
	ready := append(living[:len(living):len(living)], healthz.NamedCheck("nodes", f.checkNodes))
	routes := collected{methods: []string{http.MethodGet, http.MethodHead}}
	healthz.InstallPathHandler(&routes, "/healthz", living...)
	healthz.InstallPathHandler(&routes, "/livez", living...)
	healthz.InstallPathHandler(&routes, "/readyz", ready...)
	return routes.routes
}

// checkNodes fails while nodes wait to be registered. Those that are refused, that
// another process has, or that have failed, do not keep the process from being ready,
// unless there are no others. Those that were ended, as they are another's now, do not count.
func (f *Fleet) checkNodes(*http.Request) error {
	var waiting, refused []error
	registered := false
	for _, n := range f.Nodes() {
		if closed(n.done, "") == nil {
			if err := n.Err(); err != nil {
				refused = append(refused, fmt.Errorf("node %s has ended: %w", n.cfg.NodeSpec.Name, err))
			}
			continue
		}
		if closed(n.ready, "") == nil {
			registered = true
			continue
		}
		why := n.nodes.NotReady()
		if why == nil {
			continue // it has been registered a moment ago
		}
		err := fmt.Errorf("node %s is not registered yet: %w", n.cfg.NodeSpec.Name, why)
		if errors.Is(why, node.ErrNodeRefused) || errors.Is(why, node.ErrNodeHeld) {
			refused = append(refused, err)
		} else {
			waiting = append(waiting, err)
		}
	}
	if len(waiting) == 0 && !registered {
		waiting = refused
	}
	return errors.Join(waiting[:min(len(waiting), 10)]...)
}

var _ http.Handler = (*Fleet)(nil)
