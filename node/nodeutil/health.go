package nodeutil

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/internal/pendingconns"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const (
	// pingPatience is how old the provider's last answer to a ping may be.
	pingPatience = 3 * node.DefaultPingInterval
	// logPatience is how long the log may take to be flushed.
	logPatience = 5 * time.Second
)

// healthRoutes are /healthz, /livez and /readyz, and below each a route for
// every check. What fails where the process is to be restarted is in all of
// them; what only time or others can fix is in /readyz alone.
func (n *Node) healthRoutes() []api.Route {
	living, ready := n.healthChecks()
	routes := collected{methods: []string{http.MethodGet, http.MethodHead}}
	healthz.InstallPathHandler(&routes, "/healthz", living...)
	healthz.InstallPathHandler(&routes, "/livez", living...)
	healthz.InstallPathHandler(&routes, "/readyz", ready...)
	return routes.routes
}

// healthChecks are those of a process that need not be restarted, and of one that is ready,
// which are all of them.
func (n *Node) healthChecks() (living, ready []healthz.HealthChecker) {
	living = []healthz.HealthChecker{
		healthz.PingHealthz,
		healthz.NamedCheck("log", new(logCheck).check),
		healthz.NamedCheck("syncloop", n.checkRunning),
	}
	return living, append(living[:len(living):len(living)],
		healthz.NamedCheck("pods", func(*http.Request) error {
			return closed(n.pods.Ready(), "the pod controller waits for its caches, and so for the API server")
		}),
		healthz.NamedCheck("node", func(*http.Request) error { return n.health.checkRegistered() }),
		healthz.NamedCheck("lease", func(*http.Request) error { return n.health.checkLease() }),
		healthz.NamedCheck("provider", func(*http.Request) error { return cmp.Or(n.health.checkPing(), n.checkCalls()) }),
	)
}

// checkCalls fails while the provider does not answer a question about its pods. A
// call that runs a pod may take its time: that shows in the node's conditions only.
func (n *Node) checkCalls() error {
	for _, call := range n.pods.SlowCalls() {
		if strings.HasPrefix(call.Method, "Get") {
			return errors.New(call.String())
		}
	}
	return nil
}

// collected is a mux for libraries that install their handlers themselves.
type collected struct {
	methods []string
	routes  []api.Route
}

func (c *collected) Handle(pattern string, h http.Handler) {
	c.routes = append(c.routes, api.Route{Pattern: pattern, Methods: c.methods, Handler: h})
}

// closed fails until c is closed.
func closed(c <-chan struct{}, otherwise string) error {
	select {
	case <-c:
		return nil
	default:
		return errors.New(otherwise)
	}
}

// checkRunning fails when pods or the node are looked after no more. Before
// they are, all is well: that may take as long as the API server is away.
func (n *Node) checkRunning(*http.Request) error {
	select {
	case <-n.pods.Done():
		return errors.New("the pod controller has ended")
	case <-n.nodes.Done():
		return errors.New("the node controller has ended")
	default:
		return nil
	}
}

// checkRegistered fails before the node is registered.
func (v *nodeHealth) checkRegistered() error {
	return closed(v.registered, "the node is not registered yet")
}

// checkLease fails when the control plane may take the node for dead.
func (v *nodeHealth) checkLease() error {
	if !v.leased {
		return nil
	}
	renewed := v.renewed.Load()
	if renewed == nil {
		return errors.New("the node has no lease yet")
	}
	if age := time.Since(*renewed); age > node.DefaultLeaseDuration*time.Second {
		return fmt.Errorf("the lease was last renewed %v ago and has run out: see whether the API server can be reached", age.Round(time.Second))
	}
	return nil
}

// checkPing fails when the provider is not well, or does not say how it is.
func (v *nodeHealth) checkPing() error {
	last := v.ping.Load()
	if last == nil {
		return errors.New("the provider has not answered a ping yet")
	}
	if last.err != nil {
		return fmt.Errorf("the provider is not well: %w", last.err)
	}
	if age := time.Since(last.at); age > pingPatience {
		return fmt.Errorf("the provider last answered a ping %v ago", age.Round(time.Second))
	}
	return nil
}

// logCheck fails while the log is blocked. The library's own leaves a goroutine
// behind for ever; this one has one at most, and only while it waits.
type logCheck struct {
	mu      sync.Mutex
	flushed chan struct{} // closed when the flush under way has ended; nil without one
}

func (c *logCheck) check(r *http.Request) error {
	timeout := time.NewTimer(logPatience)
	defer timeout.Stop()
	select {
	case <-c.flush():
		return nil
	case <-timeout.C:
		return fmt.Errorf("the log could not be flushed within %v: see whether what reads it is blocked", logPatience)
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// flush returns what is closed when the log has been flushed.
func (c *logCheck) flush() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushed != nil {
		select {
		case <-c.flushed:
		default:
			return c.flushed
		}
	}
	flushed := make(chan struct{})
	c.flushed = flushed
	go func() { // ends with the flush; there is one at a time
		defer close(flushed)
		klog.Flush()
	}()
	return flushed
}

// openPaths are answered to everybody by WithAuthExceptHealth.
var openPaths = map[string]bool{"/healthz": true, "/livez": true, "/readyz": true}

// WithAuthExceptHealth is WithAuth, but lets everybody read /healthz, /livez and
// /readyz, for clients without credentials: the probes of the pod in which
// the virtual kubelet itself runs, and load balancers. They learn whether all is
// well, and if not, which checks fail, but not why. Anything more is authorized
// as ever: the same paths with a query, such as ?verbose, and single checks, such
// as /readyz/provider, which give the reason.
//
// A client with credentials needs the right to read, as of a kubelet: nodes/healthz,
// or nodes/proxy. A kubelet serves /healthz once more for everybody, on a port of its own
// that only its machine can reach.
func WithAuthExceptHealth(auth Auth, h http.Handler) http.Handler {
	protected := WithAuth(auth, h)
	return authHandler{auth: auth, HandlerFunc: func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if reads && openPaths[r.URL.Path] && r.URL.RawQuery == "" && !hasCredentials(r) {
			h.ServeHTTP(w, r.WithContext(withAuthSettled(pendingconns.Stay(r.Context()))))
			return
		}
		protected.ServeHTTP(w, r)
	}}
}

// hasCredentials reports whether a request has credentials.
func hasCredentials(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" || r.TLS != nil && len(r.TLS.PeerCertificates) > 0
}
