package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

const (
	// reportInterval is how long a status that does not change goes unwritten
	// where there is a lease (the kubelet's nodeStatusReportFrequency).
	reportInterval = 5 * time.Minute
	// repairDelay keeps two writers that want different things of a node from
	// overwriting each other all the time.
	repairDelay = time.Second
	// refusedDelay is between two attempts to register where the API server has
	// refused it.
	refusedDelay = time.Minute
	// slowWatch is how long a watch may take to show a Node that was registered.
	slowWatch = 5 * time.Second
	// lastWriteTimeout bounds the last word at shutdown.
	lastWriteTimeout = 5 * time.Second
)

// NodeController registers a Node, and keeps it alive and true to what the
// provider says of it. Make one with NewNodeController.
type NodeController struct {
	provider       NodeProvider
	nodes          corev1client.NodeInterface
	lease          *leaseConfig // nil: the status is the heartbeat
	source         NodeSource   // nil: it watches its node itself
	patient        bool         // where its registration is refused
	slot           slotFunc     // for each attempt to register
	claim          *Claim       // nil: any process may act for the node
	notReadyAtEnd  bool         // also where the process is only restarted
	events         record.EventRecorder
	pingInterval   time.Duration
	pingTimeout    time.Duration
	statusInterval time.Duration
	onStatusError  ErrorHandler // nil: a deleted node is registered again
	metrics        *Metrics     // may be nil
	conditions     []func() []corev1.NodeCondition

	name      string
	uid       atomic.Value                // types.UID, for the lease's owner reference
	wakeLease func()                      // has it renewed at once if uid is not its owner's; nil: nobody keeps it
	current   *corev1.Node                // the API's, as last seen; nil when deleted
	known     atomic.Pointer[corev1.Node] // current, for Node
	health    error                       // why the node cannot be ready
	hanging   <-chan error                // of a ping that was not answered in time
	written   time.Time                   // when the status was
	noEffect  uint64                      // hashOfWrite of what the API has left as it was; 0: the last write had an effect
	refusal   string                      // of a change of labels, annotations or taints
	itself    bool                        // to the API server this process is the node
	leftOut   string                      // what the node cannot have for that
	created   bool                        // and not yet updated
	unsure    bool                        // current may be outdated: the API was away
	readAt    time.Time                   // when current came from the API
	watching  atomic.Bool                 // the node is being watched, where there is no source
	shown     bool                        // by the watch, or the source
	notified  chan struct{}
	returned  chan struct{}           // the API, after it was away
	abort     context.CancelCauseFunc // of Run
	after     func() <-chan struct{}  // closed when the Node may be registered; nil: at once
	seen      chan observation
	pings     chan error

	started        atomic.Bool
	ready          chan struct{}
	done           chan struct{}
	conditionReady chan struct{}
	everReady      sync.Once                            // closes conditionReady
	condition      atomic.Pointer[corev1.NodeCondition] // Ready, as last written; nil before
	obstacle       atomic.Pointer[error]                // to the registration; nil without one

	mu     sync.Mutex
	wanted *corev1.Node   // by the provider
	given  []corev1.Taint // of the node at first

	err error
}

// NewNodeController makes a controller for the given node. A nil provider is
// the naive one. The node is copied; its name is required. Options apply in
// order.
func NewNodeController(p NodeProvider, node *corev1.Node, nodes corev1client.NodeInterface, opts ...NodeControllerOpt) (*NodeController, error) {
	if node == nil || node.Name == "" {
		return nil, errdefs.InvalidInput("the node to register has no name: set metadata.name")
	}
	if nodes == nil {
		return nil, errdefs.InvalidInput("the node controller was given no client: pass a NodeInterface")
	}
	if p == nil {
		p = NaiveNodeProvider{}
	}
	n := &NodeController{
		provider:       p,
		nodes:          nodes,
		pingInterval:   DefaultPingInterval,
		statusInterval: DefaultStatusUpdateInterval,
		name:           node.Name,
		wanted:         node.DeepCopy(),
		notified:       make(chan struct{}, 1),
		returned:       make(chan struct{}, 1),
		slot:           func(context.Context) (func(), error) { return func() {}, nil },
		seen:           make(chan observation, 1),
		pings:          make(chan error, 1),
		ready:          make(chan struct{}),
		conditionReady: make(chan struct{}),
		events:         &record.FakeRecorder{}, // drops them
		done:           make(chan struct{}),
	}
	n.given = n.wanted.Spec.Taints // a report replaces them there
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(n); err != nil {
			return nil, fmt.Errorf("cannot configure the node controller: %w", err)
		}
	}
	if n.claim != nil {
		n.claim.measure(n.metrics)
	}
	if n.pingTimeout == 0 {
		n.pingTimeout = n.pingInterval
	}
	return n, nil
}

// Run registers the node, waiting for an API server that is away, and keeps it
// until ctx ends, and returns nil. The Node stays as it is, so that a restart within
// the duration of its lease is not noticed, unless the cause of the end is
// ErrNodeRemoved, or WithNodeNotReadyAtShutdown was given. An error means that the node could
// not be registered: the API server refused it, or ctx ended before; or, with
// WithNodeClaim, that another process has taken the node (ErrNodeTaken). It can be
// called once.
func (n *NodeController) Run(ctx context.Context) (err error) {
	if !n.started.CompareAndSwap(false, true) {
		return errors.New("the node controller was started before: make a new one to run it again")
	}
	ctx, n.abort = context.WithCancelCause(ctx)
	ctx = log.WithLogger(ctx, log.G(ctx).WithField("node", n.name))
	var background []func() // to be called at the end, each waits for something
	release := func() {}
	defer func() {
		n.abort(nil)
		for _, wait := range background {
			wait()
		}
		release() // nobody renews the lease any more
		n.mu.Lock()
		n.err = err
		n.mu.Unlock()
		close(n.done)
	}()

	if n.claim != nil && !n.claim.acquired.Load() {
		release = func() { n.claim.Release(ctx) }
		if err := n.Claim(ctx); err != nil {
			return err
		}
	}
	if n.claim != nil && n.lease != nil {
		// Others take the node if its lease is not renewed, however long it takes to
		// register it, and something else may act for it meanwhile.
		background = append(background, n.keepLease(ctx))
	}
	if err := n.awaitTurn(ctx); err != nil {
		return err
	}
	err = providercalls.Do(ctx, n.metrics.calls(), providercalls.NotifyNodeStatus, providercalls.Pod{}, func(context.Context) error {
		// Not the context of the call, which is over before the first notification.
		n.provider.NotifyNodeStatus(ctx, n.notify)
		return nil
	})
	if err != nil {
		log.G(ctx).WithError(err).Error("The provider will have no say in the node")
	}
	select {
	case <-n.notified: // what it reported at once is part of the registration
	default:
	}
	n.hanging, n.health = n.ping(ctx)
	if err := n.register(ctx); err != nil {
		return err
	}
	log.G(ctx).Info("Registered node")
	n.event(corev1.EventTypeNormal, reasonStarting, "Starting virtual kubelet.")
	if n.health != nil {
		n.event(corev1.EventTypeWarning, reasonProviderUnhealthy, n.health.Error())
	}
	close(n.ready)

	background = append(background, n.watchNode(ctx), periodic.Run(ctx, n.pingInterval, n.pingAgain))
	if n.lease != nil {
		n.spreadReports()
		if n.claim == nil {
			background = append(background, n.keepLease(ctx))
		}
	}
	n.loop(ctx)
	if err := context.Cause(ctx); errors.Is(err, ErrNodeTaken) {
		return err
	}
	if EndsNotReady(ctx, n.notReadyAtEnd) {
		n.markNotReady(ctx)
	}
	return nil
}

// awaitTurn waits until the Node may be registered.
func (n *NodeController) awaitTurn(ctx context.Context) error {
	if n.after == nil {
		return nil
	}
	select {
	case <-n.after():
		return nil
	case <-ctx.Done():
		return n.stoppedEarly(ctx, context.Cause(ctx))
	}
}

// stoppedEarly is the error of a Run that ended before the Node was registered, which
// err kept it from.
func (n *NodeController) stoppedEarly(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrNodeTaken) {
		return cause
	}
	return fmt.Errorf("stopped before node %s could be registered: %w", n.name, err)
}

// EndsNotReady reports whether a node whose context has ended says that it is not
// ready: if it was removed (ErrNodeRemoved), and else if atShutdown is set, unless
// another process goes on with it (ErrHandedOver).
func EndsNotReady(ctx context.Context, atShutdown bool) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, ErrNodeRemoved) || atShutdown && !errors.Is(cause, ErrHandedOver)
}

// Claim acquires the claim that was given with WithNodeClaim, as its Acquire does,
// and returns at once if there is none. Run does so itself, and releases the claim
// at its end; the caller of Claim has to release it, also after an error.
func (n *NodeController) Claim(ctx context.Context) error {
	if n.claim == nil {
		return nil
	}
	return n.claim.acquire(ctx, n.patient, n.slot)
}

// Ready is closed once the node is registered.
func (n *NodeController) Ready() <-chan struct{} { return n.ready }

// UID returns that of the Node that was registered; empty before.
func (n *NodeController) UID() types.UID {
	uid, _ := n.uid.Load().(types.UID)
	return uid
}

// Done is closed when Run has returned.
func (n *NodeController) Done() <-chan struct{} { return n.done }

// Err returns what Run returned, once Done is closed.
func (n *NodeController) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// notify takes the provider's word on the node.
func (n *NodeController) notify(node *corev1.Node) {
	if node == nil {
		return
	}
	node = node.DeepCopy()
	delete(node.Annotations, annotationOwned) // of a node that was read from the API
	node.Spec.Taints = withoutRead(node.Spec.Taints, n.given)
	n.mu.Lock()
	overlayWanted(n.wanted, node, n.name)
	shareResources(&n.wanted.Status.Allocatable, n.wanted.Status.Capacity)
	n.mu.Unlock()
	select {
	case n.notified <- struct{}{}:
	default: // the loop is about to look anyway
	}
}

// want returns a copy of what the provider wants of the node, with the conditions of
// WithNodeConditions. current are those that the API has.
func (n *NodeController) want(current []corev1.NodeCondition) *corev1.Node {
	n.mu.Lock()
	wanted := n.wanted.DeepCopy()
	n.mu.Unlock()
	for _, conditions := range n.conditions {
		wanted.Status.Conditions = addConditions(wanted.Status.Conditions, conditions(), current)
	}
	return wanted
}

// loop is the only one that touches what is known of the API's node, and of the
// provider's health, once the node is registered. It ends with ctx.
func (n *NodeController) loop(ctx context.Context) {
	interval := n.pingInterval
	first := interval
	if n.lease != nil { // else the status is the heartbeat
		interval = n.statusInterval
		first = rand.N(interval) + 1 // nodes that were started together are not to look together
	}
	ticker := time.NewTicker(first)
	defer ticker.Stop()
	repair := time.NewTimer(0)
	repair.Stop()
	defer repair.Stop()
	sync := func() {
		if !n.sync(ctx) {
			repair.Reset(n.pingInterval)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.notified:
			sync()
		case <-n.returned:
			n.unsure = true
			sync()
		case err := <-n.pings:
			changed := (err == nil) != (n.health == nil)
			n.health = err
			if changed {
				n.reportHealth(ctx)
				sync()
			}
		case s := <-n.seen:
			if n.observe(s) {
				repair.Reset(repairDelay)
			}
		case <-repair.C:
			sync()
		case <-ticker.C:
			ticker.Reset(interval)
			sync()
		}
	}
}

// sync brings the API's node in line, and reports whether it is.
func (n *NodeController) sync(ctx context.Context) bool {
	err := n.update(ctx)
	if err == nil || ctx.Err() != nil {
		return true
	}
	again := n.getOrCreate
	if n.onStatusError != nil {
		err, again = n.onStatusError(ctx, err), n.get // what was deleted is the handler's to make
	} else if apierrors.IsNotFound(err) {
		log.G(ctx).Warn("The node was deleted; registering it again")
		err = nil
	}
	if err == nil {
		if err = again(ctx); err == nil {
			err = n.update(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(err).Warn("Cannot update the node; it is tried again")
	}
	return err == nil
}

// maxConflicts bounds how often an update starts over because somebody else
// changed the node meanwhile.
const maxConflicts = 5

// update writes what differs from the API's node: labels, annotations and
// taints, then the status.
func (n *NodeController) update(ctx context.Context) (err error) {
	if n.current == nil {
		return apierrors.NewNotFound(corev1.Resource("nodes"), n.name)
	}
	before := readyCondition(n.current).Status
	if n.created {
		before, n.created = "", false
	}
	defer func() {
		n.unsure = n.unsure || err != nil
		if err == nil {
			n.reportCondition(before)
		}
	}()
	ctx, span := trace.StartSpan(ctx, "updateNode")
	defer span.End()
	defer func() { span.SetStatus(err) }()

	age := time.Since(n.readAt)
	if n.unsure || !n.shown && age >= slowWatch || n.source == nil && !n.watching.Load() && age >= fresh {
		// The watch shows it as well, but may take a minute to come back, or not be allowed. What was deleted
		// before it began it never shows.
		node, err := n.Node(ctx, true)
		if err != nil {
			return err
		}
		n.take(node)
		n.unsure = false
	}
	read, wanted := n.current, n.want(n.current.Status.Conditions)
	if err := n.write(ctx, wanted); err != nil {
		return err
	}
	if !sameNode(n.current, read) && n.behind(wanted) { // else the API server has not taken what was written, nor will it
		return n.write(ctx, wanted)
	}
	return nil
}

// take takes the API's answer for what the API has.
func (n *NodeController) take(node *corev1.Node) {
	kept := *node
	kept.ManagedFields = nil // half of the node, and nobody reads them
	n.mu.Lock()
	shareResources(&kept.Status.Capacity, n.wanted.Status.Capacity)
	shareResources(&kept.Status.Allocatable, n.wanted.Status.Allocatable)
	n.mu.Unlock()
	n.current, n.readAt = &kept, time.Now()
	n.known.Store(&kept)
	if before := n.uid.Swap(node.UID); before != node.UID && n.wakeLease != nil {
		n.wakeLease()
	}
}

// keepLease renews the lease until ctx ends. wait returns, once it has, when nobody
// renews it any more.
func (n *NodeController) keepLease(ctx context.Context) (wait func()) {
	n.wakeLease, wait = periodic.RunWoken(ctx, 0, n.newLease().renew)
	return wait
}

// spreadReports has the first report of an unchanged status come earlier, at
// random, so that nodes that were started together do not report together.
func (n *NodeController) spreadReports() {
	n.written = n.written.Add(-rand.N(reportInterval))
}

// tolerate lets the status be written although labels, annotations or taints
// may not be. The refusal is logged, once.
func (n *NodeController) tolerate(ctx context.Context, err error) error {
	if err == nil {
		n.refusal = ""
		return nil
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return err
	}
	if n.refusal != err.Error() {
		n.refusal = err.Error()
		log.G(ctx).WithError(err).Warn("The API server does not accept the node's labels, annotations or taints; they stay as they are")
	}
	return nil
}

// updateMetadata writes labels, annotations and spec, if they differ.
func (n *NodeController) updateMetadata(ctx context.Context, next *corev1.Node) error {
	patch, err := nodeMetadataPatch(n.current, next)
	if err != nil || patch == nil {
		return err
	}
	result, err := n.nodes.Patch(ctx, n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	n.take(result)
	return nil
}

// register makes the node exist in the API as it should be.
func (n *NodeController) register(ctx context.Context) error {
	backoff := periodic.Backoff(registrationRetry)
	for {
		err := n.tryRegister(ctx)
		if err == nil {
			n.obstacle.Store(nil)
			return nil
		}
		delay := backoff.Step()
		if refused(err) {
			err = fmt.Errorf("cannot register node %s: %w: %w", n.name, ErrNodeRefused, err)
			if !n.patient {
				return err
			}
			delay = wait.Jitter(refusedDelay, 0.2)
		}
		n.obstacle.Store(&err)
		log.G(ctx).WithError(err).WithField("delay", delay.String()).Warn("Cannot register the node yet; will try again")
		if periodic.Sleep(ctx, delay) != nil {
			return n.stoppedEarly(ctx, err)
		}
	}
}

// registrationRetry is the longest delay between two attempts to claim or register a node.
const registrationRetry = 10 * time.Second

// tryRegister makes one attempt.
func (n *NodeController) tryRegister(ctx context.Context) error {
	done, err := n.slot(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := n.getOrCreate(ctx); err != nil {
		return err
	}
	return n.update(ctx)
}

// refused reports whether the API server will not change its mind by itself.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

func (n *NodeController) get(ctx context.Context) error {
	node, err := n.read(ctx)
	if err != nil {
		return fmt.Errorf("cannot get node %s: %w", n.name, err)
	}
	n.take(node)
	return nil
}

func (n *NodeController) getOrCreate(ctx context.Context) error {
	node, err := n.read(ctx)
	if apierrors.IsNotFound(err) {
		now := metav1.Now()
		if node, err = n.create(ctx, now); err == nil {
			n.written, n.created = now.Time, true
		}
	}
	if err != nil {
		return fmt.Errorf("cannot get or create node %s: %w", n.name, err)
	}
	n.take(node)
	return nil
}

// markNotReady writes that the node is not ready any more.
func (n *NodeController) markNotReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWriteTimeout)
	defer cancel()
	n.health = errStopped
	if err := n.update(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot write that the node has stopped; its lease will tell")
	}
}
