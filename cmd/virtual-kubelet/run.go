package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// runNode runs the node until ctx ends. Logs go to stderr, and traces of --trace-exporter
// stdout to stdout.
func runNode(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	o.live = newLive(o)
	logger := setUpLogging(&o.live.level, &o.live.format, stderr)
	ctx = log.WithLogger(ctx, logger)
	stopTracing, err := setUpTracing(ctx, o, stdout)
	if err != nil {
		return err
	}
	defer stopTracing()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	defer func() { // also where something fails on the way to the end
		cancel()
		err = errors.Join(err, group.Wait())
	}()
	if o.hasFiles() {
		used := newConfigMetric()
		if o.hasConfiguration() {
			registry := legacyregistry.Registerer() // of the process, also while it stands by
			if err := registry.Register(used); err != nil {
				return fmt.Errorf("cannot measure the configuration: %w", err)
			}
			defer registry.Unregister(used)
		}
		group.Go(func() error { o.watchConfig(ctx, used); return nil })
	}
	starting, started := o.starting(ctx, began)
	defer started()

	standby := newStandby()
	metrics, err := o.newMetricsPort(ctx, group, standby)
	if err != nil {
		return err
	}
	config, source, identity, err := clusterConfig(starting, o)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	if identity != nil {
		registry := legacyregistry.Registerer() // of the process, also while it waits
		if err := registry.Register(identity); err != nil {
			return fmt.Errorf("cannot measure the client certificate: %w", err)
		}
		defer registry.Unregister(identity)
		group.Go(func() error { return identity.Run(ctx) })
		if err := identity.WaitReady(starting); err != nil {
			return unlessStopped(ctx, err)
		}
		config = limit(identity.Config(), o)
	}
	logger.WithFields(log.Fields{"server": config.Host, "source": source}).Info("Using cluster")
	client, err := kubernetes.NewForConfig(nodeutil.Protobuf(config))
	if err != nil {
		return fmt.Errorf("cannot make a client for %s: %w", config.Host, err)
	}
	address, err := nodeAddress(starting, o, config)
	if err != nil {
		return unlessStopped(ctx, err)
	}

	auth, runAuth, err := newAuth(client, o)
	if err != nil {
		return err
	}
	group.Go(func() error { return runAuth(ctx) })

	v := virtualNode{options: o, client: client, address: address, auth: auth, standby: standby, metrics: metrics}
	if o.nodes > 0 || o.poolsFile != "" {
		return v.runFleet(ctx, began)
	}
	if o.leaderElect {
		standby.elect()
		if err := metrics.open(ctx); err != nil {
			return unlessStopped(ctx, err)
		}
		return o.election(client).Run(ctx, func(ctx context.Context) error { return v.run(ctx, time.Now()) })
	}
	return v.run(ctx, began)
}

// run makes the node, and runs it until ctx ends.
func (v *virtualNode) run(ctx context.Context, began time.Time) error {
	// Before the provider is made, which may adopt pods.
	claim, err := v.newClaim(false)
	if err != nil {
		return err
	}
	defer claim.Release(ctx)
	if err := v.acquire(ctx, claim, began); err != nil {
		return unlessStopped(ctx, err)
	}
	if err := v.metrics.open(ctx); err != nil {
		return unlessStopped(ctx, err)
	}
	defer v.metrics.close() // before another process has the claim
	n, err := v.build(ctx, claim)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	if v.closer != nil {
		defer v.closer.Close()
	}
	log.G(ctx).WithFields(log.Fields{
		"name":         v.nodeName,
		"provider":     v.options.provider,
		"capabilities": strings.Join(nodeutil.Capabilities(v.provider), ","),
		"address":      v.address,
	}).Info("Starting node")

	v.standby.use(v.mux)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.Run(ctx) })
	group.Go(func() error { return v.awaitReady(ctx, n, began) })
	return group.Wait()
}

// acquire waits until this process may act for the node. It returns an error if it may
// not, or not in time.
func (v *virtualNode) acquire(ctx context.Context, claim *node.Claim, began time.Time) error {
	starting, started := v.starting(ctx, began)
	defer started()
	err := claim.Acquire(starting)
	if err != nil && starting.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(starting), err)
	}
	return err
}

// awaitReady logs when the node's Ready condition is True, and until then why it is
// not. It returns an error if it is not in time.
func (v *virtualNode) awaitReady(ctx context.Context, n *nodeutil.Node, began time.Time) error {
	starting, started := v.starting(ctx, began)
	defer started()
	if err := awaitCondition(starting, n); err != nil {
		return unlessStopped(ctx, err)
	}
	select {
	case <-n.Done():
		return nil // with what Run returns
	default:
	}
	log.G(ctx).WithField("took", time.Since(began).Round(time.Millisecond).String()).Info("Node is ready")
	return nil
}

// readyPollInterval is how often the reason is read why a node is not ready yet.
const readyPollInterval = time.Second

// awaitCondition waits until the node's Ready condition is True, or the node has ended.
// While the node is registered and not ready, each new reason is logged. If ctx ends
// before, the error has the reason.
func awaitCondition(ctx context.Context, n *nodeutil.Node) error {
	poll := time.NewTicker(readyPollInterval)
	defer poll.Stop()
	controller := n.NodeController()
	logged := ""
	for {
		select {
		case <-controller.ConditionReady():
			return nil
		case <-n.Done():
			return nil
		case <-ctx.Done():
			if why := controller.NotReady(); why != nil {
				return fmt.Errorf("%w: %w", context.Cause(ctx), why)
			}
			return nil
		case <-poll.C:
		}
		select {
		case <-n.Ready():
		default:
			continue // the registration logs what it waits for
		}
		if why := controller.NotReady(); why != nil && why.Error() != logged {
			logged = why.Error()
			log.G(ctx).WithError(why).Warn("The node is registered, but it is not ready")
		}
	}
}

// starting returns ctx with the deadline by which the node has to be ready.
func (o *options) starting(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	if o.startupTimeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, began.Add(o.startupTimeout),
		fmt.Errorf("node %s is not ready after %v: %w", o.nodeName, o.startupTimeout, context.DeadlineExceeded))
}

// unlessStopped drops an error that came after ctx ended.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// virtualNode makes and runs a node.
type virtualNode struct {
	*options
	client  kubernetes.Interface
	address string
	auth    nodeutil.Auth

	standby  *standby          // answers requests to --metrics-addr
	metrics  *metricsPort      // where it does
	mux      *http.ServeMux    // with the kubelet API, set by build
	provider nodeutil.Provider // set by build
	closer   io.Closer         // closes the provider; may be nil
}

func (v *virtualNode) build(ctx context.Context, claim *node.Claim) (*nodeutil.Node, error) {
	providerConfig, err := v.configOfProvider()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	config := v.config()
	config.Claim, config.KeepClaim = claim, true // run releases it
	config.Client, config.Handler, config.Flags = v.client, v.handler(mux), v.flagValues()
	opts := append(v.servingOptions(), nodeutil.AttachProviderRoutes(mux))
	return nodeutil.NewNode(v.nodeName, v.newProvider(ctx, providerConfig), append([]nodeutil.NodeOpt{nodeutil.WithNodeConfig(config)}, opts...)...)
}

// config is the node's configuration without client and handler.
func (v *virtualNode) config() nodeutil.NodeConfig {
	return nodeutil.NodeConfig{
		NodeSpec:                  v.nodeSpec(),
		HTTPListenAddr:            net.JoinHostPort(v.listenAddress, strconv.Itoa(v.port)),
		NumWorkers:                v.podSyncWorkers,
		InformerResyncPeriod:      v.fullResyncPeriod,
		StreamIdleTimeout:         v.streamIdleTimeout,
		StreamCreationTimeout:     v.streamCreationTimeout,
		Namespace:                 v.namespace,
		SkipDownwardAPIResolution: providers[v.options.provider].resolves,
		DisableLease:              !v.enableNodeLease,
		EventQPS:                  v.eventQPS,
		EventSource:               v.eventSource,
		EventBurst:                v.eventBurst,
		DebugHTTP:                 v.debugHTTP,
		LostPodTimeout:            v.lostPodTimeout,
		NotReadyAtShutdown:        v.notReadyAtEnd,
	}
}

// servingOptions are those of the serving certificate.
func (v *virtualNode) servingOptions() []nodeutil.NodeOpt {
	switch v.serving {
	case servingFiles:
		return []nodeutil.NodeOpt{nodeutil.WithTLSConfig(nodeutil.WithKeyPairFromPath(v.certFile, v.keyFile))}
	case servingCluster:
		return []nodeutil.NodeOpt{nodeutil.WithServingCertificateFromCluster(v.certDir)}
	}
	return nil
}

// newProvider makes the provider, and keeps it. ctx is for that time.
func (v *virtualNode) newProvider(ctx context.Context, config []byte) nodeutil.NewProviderFunc {
	return func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		provider, nodeProvider, closer, err := v.makeProvider(ctx, config, cfg)
		v.provider, v.closer = provider, closer
		return provider, nodeProvider, err
	}
}

// makeProvider makes a provider of that configuration, and what closes it. ctx is for that
// time.
func (v *virtualNode) makeProvider(ctx context.Context, config []byte, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	return providers[v.options.provider].new(providerInit{
		ctx:            ctx,
		ProviderConfig: cfg,
		NodeName:       v.nodeName,
		OS:             v.os,
		InternalIP:     v.address,
		ClusterDomain:  v.clusterDomain,
		Config:         config,
	})
}

// nodeSpec returns the node without what its provider sets.
func (v *virtualNode) nodeSpec() corev1.Node {
	var spec corev1.Node
	spec.Name = v.nodeName
	spec.Labels = map[string]string{
		"type":                           "virtual-kubelet",
		"kubernetes.io/role":             "agent",
		corev1.LabelHostname:             v.nodeName,
		corev1.LabelOSStable:             v.os,
		corev1.LabelNodeExcludeBalancers: "",
		node.LabelProvider:               v.options.provider,
	}
	spec.Spec.Taints = v.taints(v.options.provider)
	managedClusters[v.options.managedCluster].applyTo(&spec)
	spec.Status.NodeInfo.OperatingSystem = v.os
	spec.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: v.address},
		{Type: corev1.NodeHostName, Address: v.nodeName},
	}
	return spec
}

// taints are those of a node with that provider, unless its pool has some.
func (o *options) taints(provider string) []corev1.Taint {
	if o.disableTaint {
		return nil
	}
	return []corev1.Taint{{Key: o.taintKey, Value: cmp.Or(o.taintValue, provider), Effect: corev1.TaintEffect(o.taintEffect)}}
}
