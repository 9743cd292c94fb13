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
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

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

	podFactory    informers.SharedInformerFactory
	objectFactory informers.SharedInformerFactory
	broadcaster   record.EventBroadcaster // nil where the caller has a recorder
	endpoint      *endpointTeller

	started atomic.Bool
	ready   chan struct{}
	done    chan struct{}
	mu      sync.Mutex
	err     error
}

// NewNode makes a virtual node of the given name with the provider that
// newProvider makes. Options run before newProvider.
func NewNode(name string, newProvider NewProviderFunc, opts ...NodeOpt) (*Node, error) {
	cfg := defaultNodeConfig(name)
	for _, opt := range opts {
		if err := opt(&cfg); err != nil {
			return nil, fmt.Errorf("cannot configure node %s: %w", name, err)
		}
	}
	cfg.setDefaults(name)
	if _, _, err := net.SplitHostPort(cfg.HTTPListenAddr); err != nil {
		return nil, fmt.Errorf("cannot listen on %q, which should look like :10250 or 10.0.0.1:10250: %w", cfg.HTTPListenAddr, err)
	}
	if cfg.Client == nil {
		client, err := ClientsetFromEnv(cfg.KubeconfigPath)
		if err != nil {
			return nil, err
		}
		cfg.Client = client
	}

	n := &Node{
		podFactory: informers.NewSharedInformerFactoryWithOptions(cfg.Client, cfg.InformerResyncPeriod,
			informers.WithNamespace(cfg.Namespace), PodInformerFilter(cfg.NodeSpec.Name), informers.WithTransform(trim)),
		objectFactory: informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTransform(trim)),
		ready:         make(chan struct{}),
		done:          make(chan struct{}),
	}
	podInformer := n.podFactory.Core().V1().Pods()
	objects := n.objectFactory.Core().V1()

	provider, nodeProvider, err := newProvider(ProviderConfig{
		Pods:       podInformer.Lister(),
		ConfigMaps: objects.ConfigMaps().Lister(),
		Secrets:    objects.Secrets().Lister(),
		Services:   objects.Services().Lister(),
		Node:       &cfg.NodeSpec,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the provider of node %s: %w", cfg.NodeSpec.Name, err)
	}
	if provider == nil {
		return nil, fmt.Errorf("no provider was made for node %s", cfg.NodeSpec.Name)
	}
	cfg.setDefaults(name) // the provider may have replaced the maps
	completeNode(&cfg.NodeSpec)
	if nodeProvider == nil {
		nodeProvider = node.NewNaiveNodeProvider()
	}
	n.endpoint = &endpointTeller{NodeProvider: nodeProvider}
	n.nodes, err = node.NewNodeController(n.endpoint, &cfg.NodeSpec, cfg.Client.CoreV1().Nodes(), nodeOptions(&cfg)...)
	if err != nil {
		return nil, err
	}

	if cfg.EventRecorder == nil {
		n.broadcaster = record.NewBroadcaster()
		cfg.EventRecorder = n.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "virtual-kubelet", Host: cfg.NodeSpec.Name})
	}
	ips := hostIPs(&cfg.NodeSpec)
	allocatable := cfg.NodeSpec.Status.Allocatable.DeepCopy()
	n.pods, err = node.NewPodController(node.PodControllerConfig{
		PodClient:                 cfg.Client.CoreV1(),
		EventRecorder:             cfg.EventRecorder,
		Provider:                  lifecycleHandler(provider),
		PodInformer:               podInformer,
		ConfigMapInformer:         objects.ConfigMaps(),
		SecretInformer:            objects.Secrets(),
		ServiceInformer:           objects.Services(),
		PodEventFilterFunc:        FilterPodsForNodeName(cfg.NodeSpec.Name),
		SkipDownwardAPIResolution: cfg.SkipDownwardAPIResolution,
		DisableOrphanCleanup:      cfg.DisableOrphanCleanup,
		HostIPs:                   func() []string { return ips },
		NodeAllocatable:           func() corev1.ResourceList { return allocatable },
	})
	if err != nil {
		return nil, err
	}
	if cfg.attachRoutes != nil {
		cfg.attachRoutes(provider, &cfg, podInformer.Lister())
	}
	n.cfg = cfg
	return n, nil
}

func nodeOptions(cfg *NodeConfig) []node.NodeControllerOpt {
	var opts []node.NodeControllerOpt
	if !cfg.DisableLease {
		opts = append(opts, node.WithNodeEnableLeaseV1(NodeLeaseV1Client(cfg.Client), node.DefaultLeaseDuration))
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

	if n.broadcaster != nil {
		n.broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: n.cfg.Client.CoreV1().Events("")})
		defer n.broadcaster.Shutdown()
	}
	group, ctx := errgroup.WithContext(ctx)
	if n.cfg.Handler != nil {
		listener, err := n.listen(ctx)
		if err != nil {
			return err
		}
		if tcp, ok := listener.Addr().(*net.TCPAddr); ok && n.cfg.NodeSpec.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
			n.endpoint.port = int32(tcp.Port)
		}
		group.Go(func() error { return n.serve(ctx, listener) })
	}
	for _, factory := range []informers.SharedInformerFactory{n.podFactory, n.objectFactory} {
		factory.Start(ctx.Done())
		defer factory.Shutdown() // after cancel, which runs first
	}
	defer cancel()
	group.Go(func() error { return n.pods.Run(ctx, n.cfg.NumWorkers) })
	group.Go(func() error {
		// The node takes pods only when somebody is there to see them.
		select {
		case <-ctx.Done():
			return nil
		case <-n.pods.Ready():
		}
		return n.nodes.Run(ctx)
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
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("node %s is not ready after %v", n.cfg.NodeSpec.Name, timeout))
		defer cancel()
	}
	select {
	case <-n.ready:
		return nil
	case <-n.done:
		if err := n.Err(); err != nil {
			return err
		}
		return fmt.Errorf("node %s ended before it was ready", n.cfg.NodeSpec.Name)
	case <-ctx.Done():
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
