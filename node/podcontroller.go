package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podlifecycle"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
)

// PodEventFilterFunc reports whether a pod is this node's. A filter is needed
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
	// for ConfigMaps and Secrets are not used if Objects is set. Pods wait for those
	// that are started; one that is not after five seconds has nothing, which the log says.
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
	// and ended in the provider should it appear there again. One that was created before
	// this process began, and does not run yet, is created again then. Where more than half
	// of those pods, and at least three, are missing at once, the provider is taken for
	// sick, and none of them counts as lost, or is created again, until most of them are
	// there again or were deleted. Zero means DefaultLostPodTimeout; negative: no pod is
	// ever lost, nor created again.
	LostPodTimeout time.Duration

	// Metrics measures the controller's work; nil means nothing does.
	Metrics *Metrics
}

// PodController takes the pods of a node to the provider, and the statuses that the
// provider reports back to the API. Make one with NewPodController.
type PodController struct {
	lifecycle *podlifecycle.Controller
}

// NewPodController makes a PodController. It returns an error of class
// InvalidInput if something that is required is missing.
func NewPodController(cfg PodControllerConfig) (*PodController, error) {
	cfg.Provider = providercalls.Whole(cfg.Provider)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	config := podlifecycle.Config{
		PodClient:         cfg.PodClient,
		Pods:              cfg.source(),
		EventRecorder:     cfg.EventRecorder,
		Provider:          cfg.Provider,
		ConfigMapInformer: cfg.ConfigMapInformer,
		SecretInformer:    cfg.SecretInformer,
		ServiceInformer:   cfg.ServiceInformer,
		Syncs:             podlifecycle.Retries{Limiter: cfg.SyncPodsFromKubernetesRateLimiter, Decide: cfg.SyncPodsFromKubernetesShouldRetryFunc},
		Removals:          podlifecycle.Retries{Limiter: cfg.DeletePodsFromKubernetesRateLimiter, Decide: cfg.DeletePodsFromKubernetesShouldRetryFunc},
		Statuses:          podlifecycle.Retries{Limiter: cfg.SyncPodStatusFromProviderRateLimiter, Decide: cfg.SyncPodStatusFromProviderShouldRetryFunc},
		DefaultRetry:      DefaultRetryFunc,
		PodEventFilter:    cfg.PodEventFilterFunc,
		SkipEnvironment:   cfg.SkipDownwardAPIResolution,
		HostIPs:           cfg.HostIPs,
		NodeAllocatable:   cfg.NodeAllocatable,
		Node:              cfg.Node,
		Claim:             cfg.Claim,
		PollInterval:      cfg.ProviderPollInterval,
		KeepOrphans:       cfg.DisableOrphanCleanup,
		LostPodTimeout:    cfg.LostPodTimeout,
		Metrics:           cfg.Metrics.calls(),
	}
	if cfg.Objects != nil {
		config.Objects = cfg.Objects
	}
	workers := cfg.Workers
	if workers == nil {
		workers = NewWorkers(0)
	}
	config.CallWorkers, config.WriteWorkers = workers.calls, workers.writes
	return &PodController{podlifecycle.New(config)}, nil
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
// least one), and as many more for the calls that create and update pods, until ctx
// ends, and returns when all of them have stopped. It waits for the informers' caches
// before the first pod. It can be called once.
func (pc *PodController) Run(ctx context.Context, podSyncWorkers int) (err error) {
	return pc.lifecycle.Run(ctx, podSyncWorkers)
}

// Start is Run without a goroutine that only waits, for many controllers in one process:
// it returns when the caches have synced and the workers run, and an error if they do not.
// wait is to be called once, and returns when ctx has ended and all workers have stopped;
// Done is closed then.
func (pc *PodController) Start(ctx context.Context, podSyncWorkers int) (wait func(), err error) {
	return pc.lifecycle.Start(ctx, podSyncWorkers)
}

// Begun reports whether the provider may be asked, by any method: NotifyPods, which comes before any other method, has
// returned. The pods need not be known yet, nor listed by the provider, which may take long: see Ready.
func (pc *PodController) Begun() bool { return pc.lifecycle.Begun() }

// Ready is closed once the caches have synced and the workers run.
func (pc *PodController) Ready() <-chan struct{} { return pc.lifecycle.Ready() }

// Done is closed when Run has returned.
func (pc *PodController) Done() <-chan struct{} { return pc.lifecycle.Done() }

// Err returns what Run returned, once Done is closed.
func (pc *PodController) Err() error { return pc.lifecycle.Err() }

// NodeConditions returns what the controller observes of the provider's health, for
// WithNodeConditions: ConditionProviderCallsSlow and ConditionPodsMissing.
func (pc *PodController) NodeConditions() []corev1.NodeCondition {
	return pc.lifecycle.NodeConditions()
}

// ProviderCall is a call of the provider that has not returned yet.
type ProviderCall = podlifecycle.ProviderCall

// SlowCalls returns the calls of the provider that take too long, the oldest first:
// three minutes for those that only read, ten for the others. The first are cancelled
// then, and so is DeletePod some time later; CreatePod and UpdatePod are when their pods
// are deleted or replaced.
func (pc *PodController) SlowCalls() []ProviderCall { return pc.lifecycle.SlowCalls() }

// The types of the Node conditions that NodeConditions returns.
const (
	// ConditionPodsMissing is True while the provider does not know many of the node's
	// pods, which are not taken for lost.
	ConditionPodsMissing = podlifecycle.ConditionPodsMissing
	// ConditionProviderCallsSlow is True while calls of the provider take too long, and
	// names the oldest.
	ConditionProviderCallsSlow = podlifecycle.ConditionProviderCallsSlow
)

// DefaultLostPodTimeout is for how long the provider has to miss a pod that it ran
// before the pod counts as lost.
const DefaultLostPodTimeout = podlifecycle.DefaultLostPodTimeout
