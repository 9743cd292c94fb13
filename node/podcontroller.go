package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// PodEventFilterFunc tells whether a pod is this node's. A filter is needed
// where the pod informer sees pods of other nodes (see
// nodeutil.FilterPodsForNodeName). It must not change the pod, and must give
// the same answer for a pod's whole life.
type PodEventFilterFunc func(context.Context, *corev1.Pod) bool

// PodControllerConfig configures a PodController.
type PodControllerConfig struct {
	// PodClient patches the status of pods and removes them. Required.
	PodClient corev1client.PodsGetter

	// PodInformer sees the pods of this node, those of others only if
	// PodEventFilterFunc keeps them out. Required, unless Pods is set; the caller
	// starts it.
	PodInformer corev1informers.PodInformer

	// Pods is used in place of PodInformer. Nodes made by package nodeutil have
	// one.
	Pods PodSource

	// EventRecorder records events on pods. Required.
	EventRecorder record.EventRecorder

	// Provider runs the pods. Required.
	Provider PodLifecycleHandler

	// The informers from which the environment of pods is resolved, which the
	// caller starts. Required, unless SkipDownwardAPIResolution is set; those
	// for ConfigMaps and Secrets are not used if Objects is set.
	ConfigMapInformer corev1informers.ConfigMapInformer
	SecretInformer    corev1informers.SecretInformer
	ServiceInformer   corev1informers.ServiceInformer

	// Objects reads only the ConfigMaps and Secrets that pods name. Nodes made
	// by package nodeutil have one.
	Objects ObjectSource

	// SyncPodsFromKubernetesRateLimiter delays the retries of provider calls;
	// nil means 100 ms, doubling up to a minute, with jitter. First attempts
	// are never delayed.
	SyncPodsFromKubernetesRateLimiter workqueue.TypedRateLimiter[any]
	// SyncPodsFromKubernetesShouldRetryFunc decides on the retries of provider
	// calls; nil means DefaultRetryFunc.
	SyncPodsFromKubernetesShouldRetryFunc ShouldRetryFunc

	// DeletePodsFromKubernetesRateLimiter and its retry function are the same
	// for removals of pods from the API.
	DeletePodsFromKubernetesRateLimiter     workqueue.TypedRateLimiter[any]
	DeletePodsFromKubernetesShouldRetryFunc ShouldRetryFunc

	// SyncPodStatusFromProviderRateLimiter and its retry function are the same
	// for status patches. Where neither is set, status patches and removals are
	// tried at least every five seconds while the API server is away.
	SyncPodStatusFromProviderRateLimiter     workqueue.TypedRateLimiter[any]
	SyncPodStatusFromProviderShouldRetryFunc ShouldRetryFunc

	// Workers, if set, are shared with other controllers; nil means that this one
	// has its own.
	Workers *Workers

	// PodEventFilterFunc, if set, keeps out pods that are not this node's.
	PodEventFilterFunc PodEventFilterFunc

	// SkipDownwardAPIResolution hands pods to the provider as they are, with
	// valueFrom and envFrom, for providers that resolve them themselves.
	SkipDownwardAPIResolution bool

	// HostIPs returns the node's addresses for status.hostIP(s) of pods whose
	// provider does not report any; nil means none. Safe for concurrent use.
	HostIPs func() []string

	// NodeAllocatable returns what the node can allocate, for resourceFieldRefs
	// to limits that a container does not set; nil means nothing. Safe for
	// concurrent use.
	NodeAllocatable func() corev1.ResourceList

	// Node returns the node's Node: as it is known, or, if fresh is true, as the API
	// server has it; NodeController.Node is one. With it, pods are admitted as by a
	// kubelet before they are created: one that the node has no room for, or that its
	// labels, taints, operating system or host ports rule out, or that has resource
	// claims (see ResourceClaimPreparer), is Failed with the kubelet's reason. Nil
	// means that all pods are admitted. Safe for concurrent use.
	Node func(ctx context.Context, fresh bool) (*corev1.Node, error)

	// Claim is the claim of this process to the node, which the caller has acquired and
	// a NodeController keeps. While its lease cannot be renewed no pod is created or
	// updated, since another process may have taken the node; and after this process has
	// stood still for as long as the lease lasts, nothing is done before the lease was
	// looked at. Nil means that no other process acts for the node.
	Claim *Claim

	// ProviderPollInterval is how often a provider that is no PodNotifier is
	// asked for its pods, and how soon the first searches for orphans follow
	// each other. Zero means 5 s.
	ProviderPollInterval time.Duration

	// DisableOrphanCleanup keeps the controller from deleting pods in the
	// provider that the API does not know. By default those that were seen
	// three times in a row, and that the API server confirms to be gone, are
	// deleted. A provider that notifies is then not asked for its pods at all, so
	// that a notification which it loses is not made up for either.
	DisableOrphanCleanup bool

	// LostPodTimeout is for how long the provider has to answer that it does not know
	// a pod which it ran, before the pod counts as lost: then it is Failed for good,
	// and ended in the provider should it appear there again. Where more than half of
	// the pods that run, and at least three, are missing at once, the provider is taken
	// for sick, and none of them counts as lost until most of them are there again or
	// were deleted. Zero means DefaultLostPodTimeout; negative: no pod is ever lost.
	LostPodTimeout time.Duration

	// Metrics measures the controller's work; nil means nothing does.
	Metrics *Metrics
}

// PodController takes the pods of a node to the provider, and the provider's
// word on them back to the API. Make one with NewPodController.
type PodController struct {
	client      corev1client.PodsGetter
	events      record.EventRecorder
	pods        PodSource
	owns        func(context.Context, *corev1.Pod) bool
	backend     *backend
	claim       *Claim // may be nil
	metrics     *Metrics
	notifier    PodNotifier // nil: the provider is polled
	admission   *admitter   // nil: all pods are admitted
	objects     ObjectSource
	env         *environment // nil: left to the provider
	hostIPs     func() []string
	pollEvery   time.Duration
	keepOrphans bool // not cleaned up
	listsPods   bool // the provider has shown a pod in a list; the patrol's

	lostPodTimeout time.Duration
	guard          lossGuard
	// every repeats something until Run ends.
	every func(interval time.Duration, f func(context.Context) time.Duration) (wait func())

	records  records
	strays   strays
	identity identity
	doubts   sync.Map      // keys of pods that a list of the API lacks, until they are visited
	heard    atomic.Uint64 // count of observations

	syncs    *queue.Queue
	statuses *queue.Queue
	removals *queue.Queue

	started atomic.Bool
	ready   chan struct{}
	done    chan struct{}
	mu      sync.Mutex
	err     error
}

// NewPodController makes a PodController. It returns an error of class
// InvalidInput if something that is required is missing.
func NewPodController(cfg PodControllerConfig) (*PodController, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	pc := &PodController{
		client:      cfg.PodClient,
		events:      cfg.EventRecorder,
		pods:        cfg.source(),
		owns:        func(context.Context, *corev1.Pod) bool { return true },
		backend:     newBackend(cfg.Provider, cfg.Metrics),
		claim:       cfg.Claim,
		metrics:     cfg.Metrics,
		hostIPs:     cfg.HostIPs,
		pollEvery:   cfg.ProviderPollInterval,
		keepOrphans: cfg.DisableOrphanCleanup,

		lostPodTimeout: cmp.Or(cfg.LostPodTimeout, DefaultLostPodTimeout),
		ready:          make(chan struct{}),
		done:           make(chan struct{}),
	}
	if cfg.PodEventFilterFunc != nil {
		pc.owns = cfg.PodEventFilterFunc
	}
	if pc.hostIPs == nil {
		pc.hostIPs = func() []string { return nil }
	}
	if pc.pollEvery <= 0 {
		pc.pollEvery = 5 * time.Second
	}
	pc.notifier, _ = cfg.Provider.(PodNotifier)
	pc.admission = newAdmitter(&cfg)
	pc.identity.byUID = pc.backend.byUID != nil
	pc.objects = cfg.Objects
	if pc.objects == nil {
		pc.objects = listedObjects{cfg}
	}
	if !cfg.SkipDownwardAPIResolution {
		pc.env = newEnvironment(cfg, pc.objects, pc.hostIPs)
	}
	workers := cfg.Workers
	if workers == nil {
		workers = NewWorkers(0)
	}
	pc.syncs = workers.calls.New("sync_pods_from_kubernetes", cfg.SyncPodsFromKubernetesRateLimiter,
		pc.holding(orDefault(cfg.SyncPodsFromKubernetesShouldRetryFunc)), pc.syncPod)
	removalRetry, statusRetry := cfg.DeletePodsFromKubernetesShouldRetryFunc, cfg.SyncPodStatusFromProviderShouldRetryFunc
	if removalRetry == nil && cfg.DeletePodsFromKubernetesRateLimiter == nil {
		removalRetry = pc.whileAway(DefaultRetryFunc, func(_ string, err error) bool { return isAway(err) })
	}
	if statusRetry == nil && cfg.SyncPodStatusFromProviderRateLimiter == nil {
		statusRetry = pc.whileAway(DefaultRetryFunc, pc.statusMayBeTaken)
	}
	pc.removals = workers.writes.New("delete_pods_from_kubernetes", cfg.DeletePodsFromKubernetesRateLimiter,
		orDefault(removalRetry), pc.removePod)
	pc.statuses = workers.writes.New("sync_pod_status_from_provider", cfg.SyncPodStatusFromProviderRateLimiter,
		orDefault(statusRetry), pc.writeStatus)
	for _, q := range []*queue.Queue{pc.syncs, pc.removals, pc.statuses} {
		q.Name(pc.aboutKey)
	}
	return pc, nil
}

func orDefault(f ShouldRetryFunc) ShouldRetryFunc {
	if f == nil {
		return DefaultRetryFunc
	}
	return f
}

func (cfg *PodControllerConfig) validate() error {
	var missing []string
	check := func(ok bool, field string) {
		if !ok {
			missing = append(missing, field)
		}
	}
	check(cfg.PodClient != nil, "PodClient")
	check(cfg.PodInformer != nil || cfg.Pods != nil, "PodInformer (or Pods)")
	check(cfg.EventRecorder != nil, "EventRecorder")
	check(cfg.Provider != nil, "Provider")
	if !cfg.SkipDownwardAPIResolution {
		check(cfg.ConfigMapInformer != nil || cfg.Objects != nil, "ConfigMapInformer (or Objects)")
		check(cfg.SecretInformer != nil || cfg.Objects != nil, "SecretInformer (or Objects)")
		check(cfg.ServiceInformer != nil, "ServiceInformer")
	}
	if len(missing) > 0 {
		return errdefs.InvalidInputf("the PodControllerConfig lacks %v: set them before NewPodController", missing)
	}
	return nil
}

// Run works with at most podSyncWorkers workers for each of the three queues (at
// least one), and as many more for the calls that create and update pods, until ctx ends, and returns when all of them have stopped. It waits for
// the informers' caches before the first pod. It can be called once.
func (pc *PodController) Run(ctx context.Context, podSyncWorkers int) (err error) {
	if !pc.started.CompareAndSwap(false, true) {
		return errors.New("the pod controller was started before: make a new one to run it again")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		pc.mu.Lock()
		pc.err = err
		pc.mu.Unlock()
		close(pc.done)
	}()

	defer pc.metrics.watchCalls(&pc.backend.calls)()
	// Before anything else, so that a provider that notifies from within
	// CreatePod has the function by then.
	pc.askToNotify(ctx)
	registrations, err := pc.watch(ctx)
	defer func() {
		for _, unregister := range registrations {
			unregister()
		}
	}()
	if err != nil {
		return err
	}
	seeded := pc.seed(ctx)

	pc.every = func(interval time.Duration, f func(context.Context) time.Duration) func() {
		return repeat(ctx, interval, f)
	}

	workers := max(podSyncWorkers, 1)
	queues := []*queue.Queue{pc.syncs, pc.statuses, pc.removals}
	for _, q := range queues {
		q.Start(ctx, workers)
	}
	log.G(ctx).WithField("workers", workers).WithField("polling", pc.notifier == nil).Info("Pod controller is ready")
	close(pc.ready)
	wait := pc.patrol(ctx, workers, seeded)
	<-ctx.Done()
	wait()
	for _, q := range queues {
		q.Wait()
	}
	pc.guard.stopReviews()
	pc.backend.lists.Wait()
	return nil
}

// askToNotify hands over the function to notify with. A provider that cannot
// take it is polled.
func (pc *PodController) askToNotify(ctx context.Context) {
	if pc.notifier == nil {
		return
	}
	err := call(ctx, pc.metrics, methodNotifyPods, subject{}, func(context.Context) error {
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
func (pc *PodController) watch(ctx context.Context) (undo []func(), err error) {
	await := func(told <-chan struct{}, unsubscribe func(), err error) error {
		if err != nil {
			return err
		}
		undo = append(undo, unsubscribe)
		select {
		case <-told:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stopped while waiting for the caches: %w", context.Cause(ctx))
		}
	}
	if pc.env != nil {
		undo = append(undo, pc.env.objects.Subscribe(pc.wakeWaiting))
		if err := await(pc.env.known.Done(), func() {}, nil); err != nil {
			return undo, err
		}
		for _, source := range pc.env.informers {
			if err := await(subscribe(source.informer, pc.wakeBy(source.kind))); err != nil {
				return undo, err
			}
		}
	}
	return undo, await(pc.pods.Subscribe(pc.podEvents(ctx)))
}

// Ready is closed once the caches have synced and the workers run.
func (pc *PodController) Ready() <-chan struct{} { return pc.ready }

// Done is closed when Run has returned.
func (pc *PodController) Done() <-chan struct{} { return pc.done }

// Err returns what Run returned, once Done is closed.
func (pc *PodController) Err() error {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.err
}
