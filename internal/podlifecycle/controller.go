// Package podlifecycle takes the pods of a node to the provider, and the statuses that the
// provider reports back to the API.
//
// Each pod has a record, by its UID. What happens to it adds its key to one of three
// queues; a worker of the sync queue gathers what is known into a view, and decide, which
// is pure, names the next action (see decide.go). Package node is the contract of which
// this is the work.
package podlifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Provider is what runs the pods: a node.PodLifecycleHandler.
type Provider interface {
	CreatePod(ctx context.Context, pod *corev1.Pod) error
	UpdatePod(ctx context.Context, pod *corev1.Pod) error
	DeletePod(ctx context.Context, pod *corev1.Pod) error
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error)
	GetPods(ctx context.Context) ([]*corev1.Pod, error)
}

// UIDProvider is a Provider that goes by UIDs: a node.PodUIDLifecycleHandler.
type UIDProvider interface {
	GetPodByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
	GetPodStatusByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error)
}

// notifier is a Provider that is not polled: a node.PodNotifier.
type notifier interface {
	NotifyPods(ctx context.Context, notify func(*corev1.Pod))
}

// claimPreparer is a Provider that prepares the devices of resource claims: a
// node.ResourceClaimPreparer.
type claimPreparer interface {
	PreparesResourceClaims(pod *corev1.Pod) bool
}

// PodSource is where the controller sees the pods of its node: a node.PodSource.
type PodSource interface {
	Get(namespace, name string) (*corev1.Pod, error)
	List() []*corev1.Pod
	HasSynced() bool
	Subscribe(handler cache.ResourceEventHandler) (synced <-chan struct{}, unsubscribe func(), err error)
}

// ObjectSource reads the ConfigMaps and Secrets that pods name: a node.ObjectSource.
type ObjectSource interface {
	Follow(pod *corev1.Pod)
	Forget(uid types.UID)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Subscribe(changed func(kind, namespace, name string)) (unsubscribe func())
}

// Claim is what this process has of its claim to the node: a *node.Claim.
type Claim interface {
	// MayBegin reports whether something may be begun for the node, MayGoOn whether
	// what was begun may go on, and be ended.
	MayBegin() bool
	MayGoOn() bool
}

// Retries is how failures of one of the queues are tried again.
type Retries struct {
	Limiter workqueue.TypedRateLimiter[any] // nil: the queue's own
	Decide  queue.ShouldRetryFunc           // by namespace/name; nil: Config.DefaultRetry
}

// Config is a node.PodControllerConfig, which says more about the fields.
type Config struct {
	PodClient     corev1client.PodsGetter
	Pods          PodSource
	EventRecorder record.EventRecorder
	Provider      Provider

	// Those for ConfigMaps and Secrets are not used if Objects is set.
	ConfigMapInformer corev1informers.ConfigMapInformer
	SecretInformer    corev1informers.SecretInformer
	ServiceInformer   corev1informers.ServiceInformer
	Objects           ObjectSource // may be nil

	// The queues: calls of the provider, removals of pods from the API, and writes of
	// their statuses.
	Syncs, Removals, Statuses Retries
	DefaultRetry              queue.ShouldRetryFunc
	// Where the handlers of the first run, and those of the others.
	CallWorkers, WriteWorkers *queue.Pool

	PodEventFilter  func(context.Context, *corev1.Pod) bool // may be nil
	SkipEnvironment bool
	HostIPs         func() []string            // may be nil
	NodeAllocatable func() corev1.ResourceList // may be nil
	Node            func(ctx context.Context, fresh bool) (*corev1.Node, error)
	Claim           Claim
	PollInterval    time.Duration // zero: 5 s
	KeepOrphans     bool
	LostPodTimeout  time.Duration          // zero: DefaultLostPodTimeout
	Metrics         *providercalls.Metrics // may be nil
}

// Controller is the work of a node.PodController. Make one with New.
type Controller struct {
	cfg       Config // complete
	backend   podBackend
	calls     *backend     // of the provider
	notifier  notifier     // nil: the provider is polled
	admission *admitter    // nil: all pods are admitted
	env       *environment // nil: left to the provider
	listsPods bool         // the provider has shown a pod in a list; that of relist

	guard lossGuard
	// every repeats something until Run ends.
	every func(interval time.Duration, f func(context.Context) time.Duration) (wait func())

	records      records
	candidates   candidates
	early        earlyNotifications
	observations atomic.Uint64 // a count of them

	syncs    *queue.Queue
	statuses *queue.Queue
	removals *queue.Queue

	started atomic.Bool
	begun   atomic.Bool // NotifyPods has returned
	ready   chan struct{}
	done    chan struct{}
	mu      sync.Mutex
	err     error
}

// New makes a Controller.
func New(cfg Config) *Controller {
	cfg.PollInterval = cmp.Or(max(cfg.PollInterval, 0), 5*time.Second)
	cfg.LostPodTimeout = cmp.Or(cfg.LostPodTimeout, DefaultLostPodTimeout)
	if cfg.PodEventFilter == nil {
		cfg.PodEventFilter = func(context.Context, *corev1.Pod) bool { return true }
	}
	if cfg.HostIPs == nil {
		cfg.HostIPs = func() []string { return nil }
	}
	if cfg.NodeAllocatable == nil {
		cfg.NodeAllocatable = func() corev1.ResourceList { return nil }
	}
	if cfg.Objects == nil {
		cfg.Objects = listedObjects{cfg}
	}
	pc := &Controller{
		cfg:       cfg,
		calls:     newBackend(cfg.Provider, cfg.Metrics),
		admission: newAdmitter(&cfg),
		ready:     make(chan struct{}),
		done:      make(chan struct{}),
	}
	pc.notifier, _ = cfg.Provider.(notifier)
	if pc.calls.byUID != nil {
		pc.backend = &uidBackend{backend: pc.calls, current: pc.current, records: &pc.records}
	} else {
		pc.backend = newNameBackend(pc.calls, pc.current)
	}
	if !cfg.SkipEnvironment {
		pc.env = newEnvironment(cfg)
	}
	retry := func(given Retries, whileAway func(key string, err error) bool) queue.ShouldRetryFunc {
		switch {
		case given.Decide != nil:
			return pc.byName(given.Decide)
		case given.Limiter == nil && whileAway != nil:
			return pc.whileAway(cfg.DefaultRetry, whileAway)
		}
		return cfg.DefaultRetry
	}
	pc.syncs = cfg.CallWorkers.New("sync_pods_from_kubernetes", cfg.Syncs.Limiter,
		pc.holding(retry(cfg.Syncs, nil)), pc.noting(pc.syncPod, &pc.syncs))
	pc.removals = cfg.WriteWorkers.New("delete_pods_from_kubernetes", cfg.Removals.Limiter,
		retry(cfg.Removals, func(_ string, err error) bool { return isAway(err) }), pc.noting(pc.removePod, &pc.removals))
	pc.statuses = cfg.WriteWorkers.New("sync_pod_status_from_provider", cfg.Statuses.Limiter,
		retry(cfg.Statuses, pc.statusMayBeTaken), pc.noting(pc.writeStatus, &pc.statuses))
	for _, q := range []*queue.Queue{pc.syncs, pc.removals, pc.statuses} {
		q.Name(pc.aboutKey)
	}
	return pc
}

// Run is Start, and what that returns.
func (pc *Controller) Run(ctx context.Context, podSyncWorkers int) error {
	wait, err := pc.Start(ctx, podSyncWorkers)
	if err != nil {
		return err
	}
	wait()
	return nil
}

// Start works with at most podSyncWorkers workers for each of the three queues (at
// least one), and as many more for the calls that create and update pods, until ctx
// ends. It waits for the informers' caches, and returns once the workers may begin; wait,
// which is to be called once, returns when all of them have stopped. It can be called once.
func (pc *Controller) Start(ctx context.Context, podSyncWorkers int) (wait func(), err error) {
	if !pc.started.CompareAndSwap(false, true) {
		return nil, errors.New("the pod controller was started before: make a new one to run it again")
	}
	ctx, cancel := context.WithCancel(ctx)
	unwatch := pc.cfg.Metrics.Watch(&pc.calls.calls)
	// Before anything else, so that a provider that notifies from within
	// CreatePod has the function by then.
	pc.askToNotify(ctx)
	pc.begun.Store(true)
	registrations, err := pc.watch(ctx)
	end := func(err error) {
		for _, unregister := range registrations {
			unregister()
		}
		unwatch()
		pc.hasEnded(err)
		cancel()
	}
	if err != nil {
		end(err)
		return nil, err
	}
	stop := pc.startQueues(ctx, max(podSyncWorkers, 1))
	return func() {
		<-ctx.Done()
		stop()
		pc.guard.stopReviews()
		pc.calls.lists.Wait()
		end(nil)
	}, nil
}

// startQueues has the queues handled. stop returns, once ctx has ended, when they no longer are.
func (pc *Controller) startQueues(ctx context.Context, workers int) (stop func()) {
	restored := pc.restore(ctx)

	pc.every = func(interval time.Duration, f func(context.Context) time.Duration) func() {
		return periodic.Run(ctx, interval, f)
	}

	for _, q := range pc.queues() {
		q.Start(ctx, workers)
	}
	log.G(ctx).WithField("workers", workers).WithField("polling", pc.notifier == nil).Info("Pod controller is ready")
	close(pc.ready)
	wait := pc.relist(ctx, workers, restored)
	return func() {
		wait()
		for _, q := range pc.queues() {
			q.Wait()
		}
	}
}

func (pc *Controller) queues() []*queue.Queue {
	return []*queue.Queue{pc.syncs, pc.statuses, pc.removals}
}

// hasEnded says with what the controller has ended.
func (pc *Controller) hasEnded(err error) {
	pc.mu.Lock()
	pc.err = err
	pc.mu.Unlock()
	close(pc.done)
}

// askToNotify hands over the function to notify with. A provider that cannot
// take it is polled.
func (pc *Controller) askToNotify(ctx context.Context) {
	if pc.notifier == nil {
		return
	}
	err := providercalls.Do(ctx, pc.cfg.Metrics, providercalls.NotifyPods, providercalls.Pod{}, func(context.Context) error {
		// Not the context of the call, which is over before the first notification.
		pc.notifier.NotifyPods(ctx, func(pod *corev1.Pod) { pc.observe(ctx, pod) })
		return nil
	})
	if err != nil {
		log.G(ctx).WithError(err).Error("The provider will be polled")
		pc.notifier = nil
	}
}

// watch awaits the caches and has every change of a pod, or of an object that a
// pod waits for, lead to a look at the pod.
func (pc *Controller) watch(ctx context.Context) (undo []func(), err error) {
	if pc.env != nil {
		undo = append(undo, pc.cfg.Objects.Subscribe(pc.wakeWaiting))
		services := pc.cfg.ServiceInformer.Informer()
		if err := awaitInformer(ctx, "Service", services, services.HasSyncedChecker().Done()); err != nil {
			return undo, err
		}
		for kind, informer := range pc.env.informers {
			synced, unsubscribe, err := subscribe(informer, pc.wakeBy(kind))
			if err != nil {
				return undo, err
			}
			undo = append(undo, unsubscribe)
			if err := awaitInformer(ctx, kind, informer, synced); err != nil {
				return undo, err
			}
		}
	}
	synced, unsubscribe, err := pc.cfg.Pods.Subscribe(pc.podEvents(ctx))
	if err != nil {
		return undo, err
	}
	undo = append(undo, unsubscribe)
	select {
	case <-synced:
		return undo, nil
	case <-ctx.Done():
		return undo, stoppedWaiting(ctx)
	}
}

func stoppedWaiting(ctx context.Context) error {
	return fmt.Errorf("stopped while waiting for the caches: %w", context.Cause(ctx))
}

// informerPatience is how long an informer may take to be started and filled before the log has a word on it.
const informerPatience = 5 * time.Second

// awaitInformer waits until an informer has what the API server has of a kind, as a kubelet does before it begins with
// pods. One that nobody has started is not waited for, as in the original library, which waited for pods alone: some
// programs start their factory before it has all informers, or some informers by hand.
func awaitInformer(ctx context.Context, kind string, informer cache.SharedIndexInformer, synced <-chan struct{}) error {
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return stoppedWaiting(ctx)
	case <-time.After(informerPatience):
	}
	// It has no other way to say so. The handler is the one that it has by itself; one that a program has set, and which
	// starts it later yet, is lost.
	if started := informer.SetWatchErrorHandlerWithContext(cache.DefaultWatchErrorHandler) != nil; !started {
		log.G(ctx).WithField("kind", kind).Warn("The informer of this kind is not started, so that pods get nothing from such objects: start its factory after NewPodController")
		return nil
	}
	log.G(ctx).WithField("kind", kind).Warn("Pods wait for the informer of this kind, which has not filled its cache: may this account list and watch them?")
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return stoppedWaiting(ctx)
	}
}

// Begun reports whether the provider's NotifyPods has returned, if it has one: others may ask the provider, too.
func (pc *Controller) Begun() bool { return pc.begun.Load() }

// Ready is closed once the caches have synced and the workers run.
func (pc *Controller) Ready() <-chan struct{} { return pc.ready }

// Done is closed when Run has returned.
func (pc *Controller) Done() <-chan struct{} { return pc.done }

// Err returns what Run returned, once Done is closed.
func (pc *Controller) Err() error {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.err
}
