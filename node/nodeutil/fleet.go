package nodeutil

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// FleetConfig configures a Fleet: what its nodes have in common. The fields of
// NodeConfig for the same have no effect on a node of a fleet. The zero value is
// usable.
type FleetConfig struct {
	// Client talks to the API server, for all nodes. Nil means one from
	// KubeconfigPath, by the rules of ClientsetFromEnv.
	Client         kubernetes.Interface
	KubeconfigPath string

	// Namespace is the one namespace whose pods the nodes take; empty means all.
	Namespace string

	// InformerResyncPeriod is how often all pods are resynced although nothing
	// has changed; zero means a minute.
	InformerResyncPeriod time.Duration

	// EventQPS and EventBurst are as in NodeConfig, for all nodes together.
	EventQPS float32
	// EventSource is as in NodeConfig.
	EventSource string
	EventBurst  int

	// MaxWrites is how many status patches and removals of pods all nodes
	// together have under way at most; zero means 100. The nodes take turns.
	MaxWrites int

	// MaxRegistrations is how many nodes make an attempt to register at the same time;
	// zero means 50.
	MaxRegistrations int

	// Auth decides which requests of the kubelet API are allowed: it is the default of NodeConfig.Auth, for
	// each node as AuthForNode has it. Nil means that none is served, but for nodes that
	// have a port of their own, and an Auth or a Handler of their own.
	Auth Auth

	// HTTPListenAddr is where the kubelet API of all nodes is served, as long as
	// PortPerNode is not set; empty means ":10250". With port 0 a free port is
	// taken.
	HTTPListenAddr string

	// PortPerNode serves each node's kubelet API on a port of its own: at the
	// HTTPListenAddr of its NodeConfig, which should not be left empty. Clients
	// that go by address and port alone, such as metrics-server, need that.
	PortPerNode bool

	// StreamLimits are as in NodeConfig, for all nodes together.
	StreamLimits api.StreamLimits

	// DebugHTTP adds /debug/pprof/ to what is answered about the process.
	DebugHTTP bool

	// TLSConfig is the server's, or that of each, as in NodeConfig.
	TLSConfig *tls.Config
}

// Fleet is many nodes in one process, over one client, one watch of pods and one
// of Nodes, one writer of events, and shared workers. Nodes come and go while it
// runs, and one that fails does not take down the others. Make it with NewFleet;
// its methods are safe for concurrent use.
//
// With one port for all, a request is about the node under whose name it comes
// (SNI or the Host header), or else about the node that has the pod in its path.
// What is about the process, such as /healthz and /metrics, is answered for all
// nodes together; a request for a node that it does not identify is refused with 421.
type Fleet struct {
	cfg    FleetConfig
	shared *shared
	watch  *nodeWatch
	own    http.Handler // for what is about no node; nil if nothing is served

	mu      sync.Mutex
	nodes   map[string]*member
	running context.Context // nil before Run
	ended   bool
	port    func(*Node) // sets a node's port to that of all; nil without one
	members sync.WaitGroup
	started bool
}

// member is a node of a fleet. The fleet's lock guards it.
type member struct {
	node     *Node                   // nil while it is being made
	joined   bool                    // the pods
	cancel   context.CancelCauseFunc // nil before it runs
	ended    bool
	removing bool
}

// NewFleet makes a fleet without nodes.
func NewFleet(cfg FleetConfig) (*Fleet, error) {
	if cfg.Client == nil {
		client, err := ClientsetFromEnv(cfg.KubeconfigPath)
		if err != nil {
			return nil, err
		}
		cfg.Client = client
	}
	cfg.HTTPListenAddr = cmp.Or(cfg.HTTPListenAddr, ":10250")
	if err := checkListenAddr(cfg.HTTPListenAddr); err != nil {
		return nil, err
	}
	cfg.InformerResyncPeriod = cmp.Or(cfg.InformerResyncPeriod, time.Minute)
	cfg.EventQPS, cfg.EventBurst = cmp.Or(cfg.EventQPS, 50), cmp.Or(cfg.EventBurst, 100)
	config, err := completeTLS(cfg.TLSConfig, "virtual-kubelet", nil)
	if err != nil {
		return nil, err
	}
	cfg.TLSConfig = config

	f := &Fleet{cfg: cfg, nodes: map[string]*member{}, watch: newNodeWatch(cfg.Client)}
	f.shared = newShared(cfg.Client, cfg.EventSource, cfg.EventQPS, cfg.EventBurst, cfg.StreamLimits)
	f.shared.pods = podwatch.New(cfg.Client, cfg.Namespace, cfg.InformerResyncPeriod)
	f.shared.workers = f.shared.newWorkers(cmp.Or(cfg.MaxWrites, 100))
	f.shared.registering = make(chan struct{}, cmp.Or(cfg.MaxRegistrations, 50))
	if cfg.Auth != nil {
		f.own = api.InstrumentHandler(WithAuthExceptHealth(AuthForNode(cfg.Auth, ""), f.ProcessHandler()))
	}
	return f, nil
}

// Add makes a node of that name as NewNode does, and runs it as soon as the
// fleet runs. An error means that there is no such node: its configuration is
// wrong, its provider could not be made, or the name is taken.
func (f *Fleet) Add(name string, newProvider NewProviderFunc, opts ...NodeOpt) (*Node, error) {
	m := &member{}
	f.mu.Lock()
	taken, ended := f.nodes[name] != nil, f.ended
	if !taken && !ended {
		f.nodes[name] = m
	}
	f.mu.Unlock()
	switch {
	case taken:
		return nil, errdefs.AsConflict(fmt.Errorf("the fleet has a node %s already: remove it first", name))
	case ended:
		return nil, fmt.Errorf("the fleet has ended: node %s is not added", name)
	}
	n, err := f.make(name, newProvider, opts)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		delete(f.nodes, name)
		return nil, err
	}
	m.node = n
	f.watch.keep(name)
	if f.running == nil {
		// The watch does not run, so that this is only recorded.
		m.joined = f.shared.pods.Join(context.Background(), name, n.known) == nil
	} else if !f.ended {
		f.start(m)
	}
	return n, nil
}

// make makes a node.
func (f *Fleet) make(name string, newProvider NewProviderFunc, opts []NodeOpt) (*Node, error) {
	cfg, err := newNodeConfig(name, opts)
	if err != nil {
		return nil, err
	}
	if cfg.ServingCertDir != "" && !f.cfg.PortPerNode {
		return nil, errdefs.InvalidInputf("node %s is to have a serving certificate of its own, but one port serves all nodes: use a port for each", name)
	}
	cfg.Client, cfg.Namespace, cfg.InformerResyncPeriod = f.cfg.Client, f.cfg.Namespace, f.cfg.InformerResyncPeriod
	cfg.EventQPS, cfg.EventBurst = f.cfg.EventQPS, f.cfg.EventBurst
	if cfg.ServingCertDir == "" {
		cfg.TLSConfig = f.cfg.TLSConfig
	}
	if cfg.Auth == nil && f.cfg.Auth != nil {
		cfg.Auth = AuthForNode(f.cfg.Auth, name)
	}
	if cfg.Handler == nil && cfg.Auth != nil {
		serveProvider(&cfg)
	}
	n := &Node{shared: f.shared, inFleet: true, source: f.watch}
	if err := n.make(name, newProvider, cfg); err != nil {
		return nil, err
	}
	if got := n.cfg.NodeSpec.Name; got != name {
		n.unmeasure()
		return nil, errdefs.InvalidInputf("the provider has renamed node %s to %s: the nodes of a fleet keep their names", name, got)
	}
	return n, nil
}

// serveProvider has the kubelet API of a node answered. The routes are made when
// the first request comes, since most of many nodes never get one.
func serveProvider(cfg *NodeConfig) {
	var routes func() http.Handler
	own := cfg.attachRoutes // to a mux that the caller serves elsewhere
	cfg.attachRoutes = func(n *Node, p Provider) {
		if own != nil {
			own(n, p)
		}
		routes = sync.OnceValue(func() http.Handler { return n.kubeletAPI(p) })
	}
	late := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routes().ServeHTTP(w, r) })
	cfg.Handler = api.InstrumentHandler(WithAuthExceptHealth(cfg.Auth, late))
}

// Node returns the node of that name, or nil.
func (f *Fleet) Node(name string) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.nodes[name]; m != nil {
		return m.node
	}
	return nil
}

// Nodes returns the nodes, in no order.
func (f *Fleet) Nodes() []*Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes := make([]*Node, 0, len(f.nodes))
	for _, m := range f.nodes {
		if m.node != nil {
			nodes = append(nodes, m.node)
		}
	}
	return nodes
}

// Metrics is where the program that has the fleet may register metrics of its own,
// which are then in /metrics of the process.
func (f *Fleet) Metrics() prometheus.Registerer { return f.shared.metrics.registry }

// RemoveOption changes what Remove does.
type RemoveOption func(*removal)

type removal struct {
	deleteNode bool
	cause      error // of the end of the node's context
}

// DeletingNode also deletes the Node object that the node has registered, by its UID,
// so that the cluster forgets the node and gives its pods to others. The client needs
// the right to delete nodes.
func DeletingNode() RemoveOption { return func(r *removal) { r.deleteNode = true } }

// KeepingReady leaves the Node as it is, for another process that goes on with it
// before its lease runs out (see Shards).
func KeepingReady() RemoveOption { return func(r *removal) { r.cause = node.ErrHandedOver } }

// HandOver ends at once all nodes for whose names has returns true, as Remove with KeepingReady
// does, and waits for none: another process may act for them from now on. They stay in the
// fleet until they are removed.
func (f *Fleet) HandOver(has func(name string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, m := range f.nodes {
		if m.cancel != nil && has(name) {
			m.cancel(node.ErrHandedOver)
		}
	}
}

// Remove takes the node out of the fleet: it says that it is not ready, and so do its
// pods, and nobody keeps it from then on. Its pods are left in the provider, and in the
// API. It returns when the node has ended; if ctx ends before, the node ends
// later. An error of class NotFound says that there is no such node.
func (f *Fleet) Remove(ctx context.Context, name string, opts ...RemoveOption) error {
	how := removal{cause: node.ErrNodeRemoved}
	for _, opt := range opts {
		opt(&how)
	}
	f.mu.Lock()
	m := f.nodes[name]
	if m == nil || m.node == nil || m.removing {
		f.mu.Unlock()
		return errdefs.NotFoundf("the fleet has no node %s", name)
	}
	m.removing = true
	switch {
	case m.cancel == nil:
		m.node.end(nil)
		f.release(name, m)
	case m.ended:
		f.release(name, m)
	default:
		m.cancel(how.cause)
	}
	f.mu.Unlock()
	select {
	case <-m.node.done:
	case <-ctx.Done():
		return fmt.Errorf("node %s has not ended yet: %w", name, context.Cause(ctx))
	}
	if !how.deleteNode {
		return nil
	}
	if closed(m.node.nodes.Ready(), "not registered") != nil {
		return nil // a Node of its name is somebody else's
	}
	uid := m.node.nodes.UID()
	err := f.cfg.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("node %s was removed from the fleet, but its Node cannot be deleted: %w", name, err)
	}
	return nil
}

// release forgets a node that has ended. f.mu is held.
func (f *Fleet) release(name string, m *member) {
	f.shared.pods.Leave(name)
	f.watch.drop(name)
	m.node.unmeasure()
	for _, pod := range m.node.known.List() {
		f.shared.objects.Forget(pod.UID)
		f.shared.metrics.starts.forget(pod)
	}
	delete(f.nodes, name)
}
