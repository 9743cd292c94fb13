package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodLifecycleHandler is what a provider has to implement.
//
// The pods that it is given are its own copies, to keep and to change. Methods
// are called concurrently for different pods, and one at a time for each pod
// (the methods that only read excepted). An error is retried, for ever, after
// 100 ms, doubling to a minute; its class (package errdefs) can name another delay
// or say that a retry is of no use (see DefaultRetryFunc). A panic counts as an
// error.
//
// The status that it reports goes to the API, but for what others own. Nothing is
// made up for it: a pod is not ready, and Services leave it out, until a condition Ready
// that is True was reported. A condition that a later status lacks stays as it is, since
// it may be another's: a pod that is no longer ready needs Ready with False, unless it has
// ended. podspec.Status makes a whole status, by the kubelet's rules, from what is known
// of the containers.
//
// docs/write-a-provider.md has an example, and a table of the methods.
type PodLifecycleHandler interface {
	// CreatePod takes a pod on. It is called at most once for each UID that the
	// provider holds; after an error the provider is asked with GetPod before
	// it is called again. Variables of the environment have their values, and EnvFrom is
	// empty (but see PodControllerConfig.SkipDownwardAPIResolution). A variable that has
	// ValueFrom still has none, not an empty one: the provider fills it in, or refuses the
	// pod (errdefs.AsPermanent). Such are those of status.podIP(s), which is not known before
	// the pod runs, of status.hostIP(s) on a node without addresses, and of fileKeyRef.
	// CreatePod may take as long as it needs; ctx ends when the pod is deleted or replaced meanwhile, and DeletePod follows in any case. Once it has
	// returned ctx ends with the controller alone, for what goes on in goroutines
	// and keeps ctx, not its channel of Done alone; so do those of UpdatePod, DeletePod and the first GetPods.
	CreatePod(ctx context.Context, pod *corev1.Pod) error

	// UpdatePod takes over a change of a pod that the provider holds: of its
	// metadata, or of the fields of a spec that can change (images,
	// tolerations, activeDeadlineSeconds, ephemeral containers, resources). Its ctx
	// ends as that of CreatePod does. A variable of a running container whose ConfigMap
	// or Secret has been deleted since keeps its ValueFrom (or its source stays in
	// EnvFrom): the container has the value already.
	UpdatePod(ctx context.Context, pod *corev1.Pod) error

	// DeletePod asks for the end of a pod: with DeletionGracePeriodSeconds 0 at
	// once, else gracefully within that time. It may return before the pod has
	// stopped; the pod leaves the API when the provider reports it stopped, or
	// no longer knows it. It may be called again for the same pod, in
	// particular to kill it when its grace period has run out. For a pod that
	// the provider does not know it returns an error of class NotFound. One that
	// joins it with another failure (errors.Join) counts as that failure, as with
	// GetPod and GetPodStatus.
	DeletePod(ctx context.Context, pod *corev1.Pod) error

	// GetPod returns a pod that the provider holds. For one that it does not
	// hold it returns an error of class NotFound, or nil and no error. After any
	// other error nothing is done about the pod but to ask again; one of no class
	// counts as NotFound if GetPods does not show the pod either, so that a backend that
	// could not be asked is better an errdefs.AsUnavailable. A pod that is to run, and that this
	// process had created less than half an hour ago and has not been shown since, may be
	// coming: for it such an error is no NotFound. After a restart of the process it is.
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)

	// GetPodStatus returns the status of a pod that the provider holds, under
	// the same rules as GetPod.
	GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error)

	// GetPods returns all the pods that the provider holds for this node.
	// Those among them that the API no longer knows are deleted with DeletePod
	// (see PodControllerConfig.DisableOrphanCleanup), so it must not return
	// pods of others. For one that it leaves out again and again, the provider is
	// asked with GetPod, whose word counts. A provider that cannot tell returns
	// nothing. After an error it is called again after growing delays, or when the
	// error says (errdefs.AsRetryAfter). The pods are read after the call, and never changed: they are copies,
	// or pods that the provider does not change either.
	GetPods(ctx context.Context) ([]*corev1.Pod, error)
}

// PodNotifier is implemented by a provider that reports the changes of its pods
// itself. One that does not is asked at intervals, with GetPods; one that does is
// asked once a minute, and every five while that finds nothing, for what a lost
// notification would have shown and for orphans.
type PodNotifier interface {
	// NotifyPods hands over the function to be called with a pod whenever its
	// status has changed. It is called once, before any other method, and must
	// not block. The function may be called at any time until ctx ends, from
	// any goroutine; it does not block either, and copies what it needs. The
	// pod needs name, namespace and status; a UID, where it has one, is
	// compared.
	NotifyPods(ctx context.Context, notify func(*corev1.Pod))
}

// PodUIDLifecycleHandler is implemented by a provider that finds its pods by
// UID. Where it is, its two methods are called in place of GetPod and
// GetPodStatus, under the same rules. GetPods has to show the UIDs, and to have
// answered once before the first pod is created: it alone shows an older pod of
// the same name, which goes first.
type PodUIDLifecycleHandler interface {
	PodLifecycleHandler

	// GetPodByUID returns a pod that the provider holds.
	GetPodByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)

	// GetPodStatusByUID returns the status of a pod that the provider holds.
	GetPodStatusByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error)
}

// ResourceClaimPreparer is implemented by a provider that prepares the devices of
// resource claims (dynamic resource allocation). On the nodes of others pods with
// claims are rejected, as they would run without their devices.
type ResourceClaimPreparer interface {
	// PreparesResourceClaims reports whether CreatePod prepares the claims of a pod.
	// It does not block, and does not change the pod.
	PreparesResourceClaims(pod *corev1.Pod) bool
}
