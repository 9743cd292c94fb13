package nodeutil

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// Node is a virtual node: its two controllers and its server. Make one with
// NewNode, or several with a Fleet.
type Node struct {
	cfg     NodeConfig
	shared  *shared
	inFleet bool
	source  node.NodeSource // nil: the node watches itself
	pods    *node.PodController
	nodes   *node.NodeController

	known       *podwatch.Pods // the pods of the node
	events      *lateRecorder  // nil where the caller has a recorder
	endpoint    *endpointStatus
	health      nodeHealth
	unguarded   bool         // no authentication is configured for the kubelet API
	defaultAuth *defaultAuth // nil if authentication is configured for the provider's routes
	unmeasure   func()       // takes the node out of the metrics
	servingLife servingLife
	serving     *signedCert // nil unless the cluster signs it

	started atomic.Bool
	over    atomic.Bool // control has returned
	ready   chan struct{}
	done    chan struct{}
	mu      sync.Mutex
	err     error
}

// NewNode makes a virtual node of the given name with the provider that
// newProvider makes. Options run before newProvider.
func NewNode(name string, newProvider NewProviderFunc, opts ...NodeOpt) (*Node, error) {
	cfg, err := newNodeConfig(name, opts)
	if err != nil {
		return nil, err
	}
	if cfg.Client == nil {
		client, err := ClientsetFromEnv(cfg.KubeconfigPath)
		if err != nil {
			return nil, err
		}
		cfg.Client = client
	}
	n := &Node{shared: newShared(cfg.Client, cfg.EventSource, cfg.EventQPS, cfg.EventBurst, cfg.StreamLimits)}
	n.shared.workers = n.shared.newWorkers(0)
	if err := n.make(name, newProvider, cfg); err != nil {
		return nil, err
	}
	return n, nil
}

// newNodeConfig runs the options.
func newNodeConfig(name string, opts []NodeOpt) (cfg NodeConfig, err error) {
	cfg = defaultNodeConfig(name)
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(&cfg); err != nil {
			return cfg, fmt.Errorf("cannot configure node %s: %w", name, err)
		}
	}
	cfg.setDefaults(name)
	if err := checkListenAddr(cfg.HTTPListenAddr); err != nil {
		return cfg, err
	}
	return cfg, cfg.checkServing()
}

// make makes the provider and all that is the node's own.
func (n *Node) make(name string, newProvider NewProviderFunc, cfg NodeConfig) error {
	if newProvider == nil {
		return errdefs.InvalidInputf("no function was given that makes the provider of node %s", name)
	}
	n.ready, n.done = make(chan struct{}), make(chan struct{})
	n.known = podwatch.NewPods()
	if cfg.EventRecorder == nil {
		n.events = &lateRecorder{writer: n.shared.events}
		cfg.EventRecorder = n.events
	}
	services := n.shared.services.Core().V1().Services()
	spec := cfg.NodeSpec.DeepCopy() // which the provider may change and keep
	n.endpoint = &endpointStatus{allocatables: &n.shared.allocatable}
	n.endpoint.record(spec)
	provider, nodeProvider, err := newProvider(ProviderConfig{
		Pods:       n.known.Lister(),
		PodsSynced: n.known.HasSynced,
		ConfigMaps: n.shared.objects.ConfigMaps(),
		Secrets:    n.shared.objects.Secrets(),
		Services:   services.Lister(),
		Node:       spec,

		Objects:         n.shared.objects,
		Client:          cfg.Client,
		Events:          cfg.EventRecorder,
		HostIPs:         n.endpoint.hostIPs,
		NodeAllocatable: func() corev1.ResourceList { return n.endpoint.nodeAllocatable().DeepCopy() }, // which others share
		Metrics:         n.shared.metrics.registry,
		MayBegin:        n.mayBegin(cfg.Claim),
	})
	if err != nil {
		return fmt.Errorf("cannot make the provider of node %s: %w", cfg.NodeSpec.Name, err)
	}
	if provider == nil {
		return errdefs.InvalidInputf("no provider was made for node %s: the function returned nil, and no error", cfg.NodeSpec.Name)
	}
	cfg.NodeSpec = *spec.DeepCopy()
	cfg.setDefaults(name) // the provider may have replaced the maps
	completeNode(&cfg.NodeSpec)
	if nodeProvider == nil {
		setReady(&cfg.NodeSpec)
	}
	setAddresses(&cfg.NodeSpec, cfg.Client)
	setCapacity(&cfg.NodeSpec, nodeProvider)
	cfg.NodeSpec.Status.Capacity = n.shared.capacity.shared(cfg.NodeSpec.Status.Capacity)
	cfg.NodeSpec.Status.Allocatable = n.shared.allocatable.shared(cfg.NodeSpec.Status.Allocatable)
	n.endpoint.labels = cfg.NodeSpec.Labels
	n.cfg = cfg
	if n.events != nil {
		n.events.node = cfg.NodeSpec.Name
	}
	if n.shared.pods == nil { // it is no fleet's
		n.shared.pods = podwatch.ForNode(cfg.Client, cfg.Namespace, cfg.InformerResyncPeriod, cfg.NodeSpec.Name, n.known)
	}
	if err := n.makeControllers(provider, nodeProvider); err != nil {
		return err
	}
	ignoreStarts := n.shared.metrics.starts.watch(n.known)
	leave := n.shared.metrics.add(&measuredNode{name: cfg.NodeSpec.Name, pods: n.known.Lister(), health: &n.health, serving: &n.servingLife})
	n.unmeasure = func() {
		ignoreStarts() // else a resync that goes on has the pods wait again
		leave()
	}
	if cfg.attachRoutes != nil {
		cfg.attachRoutes(n, provider)
	}
	return nil
}

// makeControllers makes those of the Node and of its pods.
func (n *Node) makeControllers(provider Provider, nodeProvider node.NodeProvider) (err error) {
	if nodeProvider == nil {
		nodeProvider = node.NewNaiveNodeProvider()
	}
	n.endpoint.NodeProvider = n.health.ofPings(nodeProvider)
	n.nodes, err = node.NewNodeController(n.endpoint, &n.cfg.NodeSpec, n.cfg.Client.CoreV1().Nodes(), n.nodeOptions(&n.cfg)...)
	if err != nil {
		return err
	}
	n.health.registered = n.nodes.Ready()
	n.endpoint.record(&n.cfg.NodeSpec)
	n.pods, err = node.NewPodController(node.PodControllerConfig{
		PodClient:                 n.shared.pods.Client(),
		EventRecorder:             n.cfg.EventRecorder,
		Provider:                  provider,
		Pods:                      n.known,
		Objects:                   n.shared.objects,
		ServiceInformer:           n.shared.services.Core().V1().Services(),
		Workers:                   n.shared.workers,
		PodEventFilterFunc:        n.podFilter(),
		SkipDownwardAPIResolution: n.cfg.SkipDownwardAPIResolution,
		DisableOrphanCleanup:      n.cfg.DisableOrphanCleanup,
		LostPodTimeout:            n.cfg.LostPodTimeout,
		Metrics:                   n.shared.metrics.controllers,
		HostIPs:                   n.endpoint.hostIPs,
		NodeAllocatable:           n.endpoint.nodeAllocatable,
		Node:                      n.nodes.Node,
		Claim:                     n.cfg.Claim,
	})
	return err
}

// podFilter keeps out the pods of other nodes, and those that another provider runs.
func (n *Node) podFilter() node.PodEventFilterFunc {
	mine := FilterPodsForNodeName(n.cfg.NodeSpec.Name)
	claim := n.cfg.Claim
	if claim == nil {
		return mine
	}
	return func(ctx context.Context, pod *corev1.Pod) bool { return mine(ctx, pod) && !claim.LeftAlone(pod) }
}

func (n *Node) nodeOptions(cfg *NodeConfig) []node.NodeControllerOpt {
	opts := []node.NodeControllerOpt{
		node.WithNodeMetrics(n.shared.metrics.controllers),
		// The pod controller is made after this one, and before it runs.
		node.WithNodeConditions(func() []corev1.NodeCondition { return n.pods.NodeConditions() }),
		node.WithNodeRegistrationAfter(func() <-chan struct{} { return n.pods.Ready() }),
	}
	if !cfg.DisableLease {
		opts = append(opts, node.WithNodeEnableLeaseV1(n.health.ofLease(newNodeLeases(cfg.Client)), node.DefaultLeaseDuration))
	}
	if n.source != nil {
		opts = append(opts, node.WithNodeSource(n.source), node.WithNodePatience(), node.WithNodeRegistrationSlots(n.shared.register))
	}
	opts = append(opts, node.WithNodeEventRecorder(cfg.EventRecorder))
	if cfg.NotReadyAtShutdown {
		opts = append(opts, node.WithNodeNotReadyAtShutdown())
	}
	if cfg.Claim != nil {
		opts = append(opts, node.WithNodeClaim(cfg.Claim))
	}
	if cfg.NodeStatusUpdateErrorHandler != nil {
		opts = append(opts, node.WithNodeStatusUpdateErrorHandler(cfg.NodeStatusUpdateErrorHandler))
	}
	return opts
}

// podRoutes are those about pods, which the provider answers.
func (n *Node) podRoutes(config api.PodHandlerConfig) []api.Route {
	routes := api.PodRoutes(config, true)
	for i := range routes {
		if config.GetStatsSummary != nil && routes[i].Pattern == "/metrics/cadvisor" { // which answers without a summary, too
			routes[i].Handler = n.serveOnceBegun(routes[i].Handler)
		}
	}
	return routes
}

// podHandlerConfig connects the provider to the handlers of package api.
func (n *Node) podHandlerConfig(p Provider) api.PodHandlerConfig {
	config := providerRoutes(p)
	config.GetPods = onceBegun(n, config.GetPods)
	config.GetStatsSummary = onceBegun(n, config.GetStatsSummary)
	config.GetMetricsResource = onceBegun(n, config.GetMetricsResource)
	config.GetPodsFromKubernetes = func(context.Context) ([]*corev1.Pod, error) { return n.known.List(), nil }
	config.FindPod = n.findPod
	config.StreamLimiter = n.shared.streams
	config.StreamIdleTimeout = n.cfg.StreamIdleTimeout
	config.StreamCreationTimeout = n.cfg.StreamCreationTimeout
	return config
}

// findPod finds pods of the node in the cache, once the provider may be asked about them.
func (n *Node) findPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	if err := n.begun(); err != nil {
		return nil, err
	}
	return n.known.Get(namespace, name)
}
