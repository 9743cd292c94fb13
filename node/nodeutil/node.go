package nodeutil

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// Node is a virtual node: its two controllers, its informers and its server.
// Make one with NewNode.
type Node struct {
	cfg   NodeConfig
	pods  *node.PodController
	nodes *node.NodeController

	podInformer    cache.SharedIndexInformer
	objects        *podobjects.Cache
	serviceFactory informers.SharedInformerFactory
	events         *lateRecorder // nil where the caller has a recorder
	endpoint       *endpointTeller
	vitals         vitals
	metrics        *nodeMetrics
	servingLife    servingLife
	serving        *signedCert // nil unless the cluster signs it

	started atomic.Bool
	ready   chan struct{}
	done    chan struct{}
	mu      sync.Mutex
	err     error
}

// NewNode makes a virtual node of the given name with the provider that
// newProvider makes. Options run before newProvider.
func NewNode(name string, newProvider NewProviderFunc, opts ...NodeOpt) (*Node, error) {
	if newProvider == nil {
		return nil, errdefs.InvalidInputf("no function was given that makes the provider of node %s", name)
	}
	cfg := defaultNodeConfig(name)
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(&cfg); err != nil {
			return nil, fmt.Errorf("cannot configure node %s: %w", name, err)
		}
	}
	cfg.setDefaults(name)
	if err := checkListenAddr(cfg.HTTPListenAddr); err != nil {
		return nil, err
	}
	if err := cfg.checkServing(); err != nil {
		return nil, err
	}
	if cfg.Client == nil {
		client, err := ClientsetFromEnv(cfg.KubeconfigPath)
		if err != nil {
			return nil, err
		}
		cfg.Client = client
	}

	n := &Node{
		metrics: newNodeMetrics(),
		ready:   make(chan struct{}),
		done:    make(chan struct{}),
	}
	pods := listwatch.Pods(cfg.Client, cfg.Namespace, cfg.InformerResyncPeriod, func() string {
		return n.cfg.NodeSpec.Name // which the provider may change
	})
	n.podInformer = pods.Informer()
	if err := n.podInformer.SetTransform(trim); err != nil {
		return nil, err
	}
	n.objects = podobjects.New(cfg.Client)
	n.serviceFactory = informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTransform(trim))
	services := n.serviceFactory.Core().V1().Services()

	if cfg.EventRecorder == nil {
		n.events = newLateRecorder(cfg.EventQPS, cfg.EventBurst)
		cfg.EventRecorder = n.events
	}
	spec := cfg.NodeSpec.DeepCopy() // which the provider may change and keep
	n.endpoint = &endpointTeller{}
	n.endpoint.keep(spec)
	provider, nodeProvider, err := newProvider(ProviderConfig{
		Pods:       pods.Lister(),
		ConfigMaps: n.objects.ConfigMaps(),
		Secrets:    n.objects.Secrets(),
		Services:   services.Lister(),
		Node:       spec,

		Objects:         n.objects,
		Client:          cfg.Client,
		Events:          cfg.EventRecorder,
		HostIPs:         n.endpoint.hostIPs,
		NodeAllocatable: n.endpoint.nodeAllocatable,
		Metrics:         n.metrics.registry,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the provider of node %s: %w", cfg.NodeSpec.Name, err)
	}
	if provider == nil {
		return nil, errdefs.InvalidInputf("no provider was made for node %s: the function returned nil, and no error", cfg.NodeSpec.Name)
	}
	cfg.NodeSpec = *spec.DeepCopy()
	cfg.setDefaults(name) // the provider may have replaced the maps
	completeNode(&cfg.NodeSpec)
	if nodeProvider == nil {
		nodeProvider = node.NewNaiveNodeProvider()
	}
	n.endpoint.NodeProvider = n.vitals.ofPings(nodeProvider)
	n.nodes, err = node.NewNodeController(n.endpoint, &cfg.NodeSpec, cfg.Client.CoreV1().Nodes(), n.nodeOptions(&cfg)...)
	if err != nil {
		return nil, err
	}

	n.vitals.registered = n.nodes.Ready()
	n.endpoint.keep(&cfg.NodeSpec)
	n.pods, err = node.NewPodController(node.PodControllerConfig{
		PodClient:                 cfg.Client.CoreV1(),
		EventRecorder:             cfg.EventRecorder,
		Provider:                  lifecycleHandler(provider),
		PodInformer:               pods,
		Objects:                   n.objects,
		ServiceInformer:           services,
		PodEventFilterFunc:        FilterPodsForNodeName(cfg.NodeSpec.Name),
		SkipDownwardAPIResolution: cfg.SkipDownwardAPIResolution,
		DisableOrphanCleanup:      cfg.DisableOrphanCleanup,
		Metrics:                   n.metrics.controllers,
		HostIPs:                   n.endpoint.hostIPs,
		NodeAllocatable:           n.endpoint.nodeAllocatable,
	})
	if err != nil {
		return nil, err
	}
	n.cfg = cfg
	if cfg.attachRoutes != nil {
		cfg.attachRoutes(n, provider)
	}
	return n, nil
}

func (n *Node) nodeOptions(cfg *NodeConfig) []node.NodeControllerOpt {
	opts := []node.NodeControllerOpt{node.WithNodeMetrics(n.metrics.controllers)}
	if !cfg.DisableLease {
		opts = append(opts, node.WithNodeEnableLeaseV1(n.vitals.ofLease(NodeLeaseV1Client(cfg.Client)), node.DefaultLeaseDuration))
	}
	if cfg.NodeStatusUpdateErrorHandler != nil {
		opts = append(opts, node.WithNodeStatusUpdateErrorHandler(cfg.NodeStatusUpdateErrorHandler))
	}
	return opts
}

// podHandlerConfig connects the provider to the handlers of package api.
func podHandlerConfig(p Provider, cfg *NodeConfig, pods corev1listers.PodLister) api.PodHandlerConfig {
	config := providerRoutes(p)
	config.GetPodsFromKubernetes = listPods(pods)
	config.StreamIdleTimeout = cfg.StreamIdleTimeout
	config.StreamCreationTimeout = cfg.StreamCreationTimeout
	return config
}

// trim drops from cached objects what nobody reads.
func trim(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// Run runs the node until ctx ends, then says that it is not ready, and returns
// nil; or it returns the error with which one of its parts has failed. Pods go
// on running in the provider. It can be called once.
func (n *Node) Run(ctx context.Context) (err error) {
	if !n.started.CompareAndSwap(false, true) {
		return errors.New("the node was started before: make a new one to run it again")
	}
	defer func() {
		n.mu.Lock()
		n.err = err
		n.mu.Unlock()
		close(n.done)
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = log.WithLogger(ctx, log.G(ctx).WithField("node", n.cfg.NodeSpec.Name))

	if n.events != nil {
		defer n.events.start(n.cfg.Client, n.cfg.NodeSpec.Name)()
	}
	group, ctx := errgroup.WithContext(ctx)
	if n.cfg.Handler != nil {
		listener, err := n.listen(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		if tcp, ok := listener.Addr().(*net.TCPAddr); ok && n.cfg.NodeSpec.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
			n.endpoint.port = int32(tcp.Port)
		}
		group.Go(func() error { return n.serve(ctx, listener) })
		if n.serving != nil {
			group.Go(func() error { return n.keepServingCert(ctx) })
		}
	} else if n.cfg.attachRoutes != nil {
		log.G(ctx).Warn("The kubelet API is not served: AttachProviderRoutes was given a mux, but NodeConfig.Handler is nil")
	}
	group.Go(func() error { n.podInformer.RunWithContext(ctx); return nil })
	group.Go(func() error { n.objects.Run(ctx); return nil })
	n.serviceFactory.StartWithContext(ctx)
	defer n.serviceFactory.Shutdown() // after cancel, which runs first
	defer cancel()
	group.Go(func() error { return unlessEnded(ctx, n.pods.Run(ctx, n.cfg.NumWorkers)) })
	group.Go(func() error {
		// The node takes pods only when somebody is there to see them.
		select {
		case <-ctx.Done():
			return nil
		case <-n.pods.Ready():
		}
		return unlessEnded(ctx, n.nodes.Run(ctx))
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-n.nodes.Ready():
			close(n.ready)
		}
		return nil
	})
	return group.Wait()
}

// unlessEnded drops what a part has to say about having been stopped.
func unlessEnded(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		log.G(ctx).WithError(err).Info("Stopped before the node was ready")
		return nil
	}
	return err
}

// Ready is closed once the node is registered and takes pods.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Done is closed when Run has returned.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns what Run returned, once Done is closed.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// WaitReady waits until the node is ready, it has ended, ctx ends, or the
// timeout has passed, and returns an error in all cases but the first. A
// timeout of zero or less means none.
func (n *Node) WaitReady(ctx context.Context, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout,
			fmt.Errorf("node %s is not ready after %v: %w", n.cfg.NodeSpec.Name, timeout, context.DeadlineExceeded))
		defer cancel()
	}
	select {
	case <-n.ready:
	case <-n.done:
	case <-ctx.Done():
	}
	// More than one of them may have come true.
	select {
	case <-n.done:
		if err := n.Err(); err != nil {
			return err
		}
		return fmt.Errorf("node %s has ended", n.cfg.NodeSpec.Name)
	default:
	}
	select {
	case <-n.ready:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// NodeController returns the controller of the Node object.
func (n *Node) NodeController() *node.NodeController { return n.nodes }

// PodController returns the controller of the pods.
func (n *Node) PodController() *node.PodController { return n.pods }

// listPods lists the pods of the node as the cache has them.
func listPods(pods corev1listers.PodLister) api.PodListerFunc {
	return func(context.Context) ([]*corev1.Pod, error) { return pods.List(everything) }
}
