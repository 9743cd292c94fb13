package podlifecycle

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podBackend is the provider as the controller sees it: a pod is its UID. It is safe for
// concurrent use; calls about one pod do not overlap, but for status.
type podBackend interface {
	// create and update get pods that are copies already: their environment was
	// resolved for this call.
	create(ctx context.Context, pod *corev1.Pod) error
	update(ctx context.Context, pod *corev1.Pod) error

	// delete asks for the end of a pod within its grace period, at once if that is
	// zero. A pod that the provider does not know is no error: found is false then.
	delete(ctx context.Context, id types.UID, pod *corev1.Pod, grace time.Duration) (found bool, err error)

	// find returns the pod as the provider holds it, with its status, or nil. An error
	// means that it is not known whether it does. namesake is another pod that the
	// provider holds in its place.
	find(ctx context.Context, id types.UID, pod *corev1.Pod, coming bool) (found, namesake *corev1.Pod, err error)

	// status returns the status of a pod that the provider holds, or nil if it does not
	// know the pod. It is the provider's: copy what is kept.
	status(ctx context.Context, pod *corev1.Pod) (*corev1.PodStatus, error)

	// list returns what the provider holds, without the entries that name no pod.
	// The pods belong to the provider: copy what is kept.
	list(ctx context.Context) ([]*corev1.Pod, error)

	// identify returns which pod of the controller the provider shows.
	identify(shown *corev1.Pod) identity

	// mayBe reports whether nothing distinguishes the API's pod of a name from what the
	// provider shows under it.
	mayBe(pod, shown *corev1.Pod) bool

	// hold records that the provider shows a pod of the controller as shown.
	hold(id types.UID, pod, shown *corev1.Pod)

	// adopt makes shown, which the API does not have, a pod of the controller, and
	// returns its id. If it is a namesake, the pod of its name that the API has waits
	// for its end. Else adopt returns false if shown is a pod of the controller by now.
	adopt(shown *corev1.Pod, namesake bool) (types.UID, bool)

	// forget records that a pod is over: neither the API nor the provider has it.
	forget(id types.UID, pod *corev1.Pod)
}

// identity is what a pod that the provider shows means to the controller.
type identity struct {
	// id is that of the controller's pod which it is, if is is set, or else that of the
	// pod in whose place it is shown; empty if there is none.
	id types.UID
	is bool
	// unknown is set if the controller has no such pod.
	unknown bool
}

// uidBackend is a provider that goes by UIDs.
type uidBackend struct {
	*backend
	// current returns the node's pod of a name in the API, or nil.
	current func(types.NamespacedName) *corev1.Pod
	records *records
}

func (b *uidBackend) delete(ctx context.Context, _ types.UID, pod *corev1.Pod, grace time.Duration) (bool, error) {
	return b.deletePod(ctx, pod, grace)
}

func (b *uidBackend) find(ctx context.Context, _ types.UID, pod *corev1.Pod, coming bool) (found, namesake *corev1.Pod, err error) {
	found, err = b.findPod(ctx, pod, coming)
	if found != nil && found.UID != "" && found.UID != pod.UID {
		return nil, found, err
	}
	return found, nil, err
}

// identify implements podBackend. Where the provider shows a pod without its UID, only
// the name and the age are left to go by.
func (b *uidBackend) identify(shown *corev1.Pod) identity {
	if shown.UID != "" && b.records.get(shown.UID) != nil {
		return identity{id: shown.UID, is: true}
	}
	pod := b.current(nameOf(shown))
	switch {
	case pod == nil:
	case shown.UID == "":
		return identity{id: pod.UID, is: !clearlyOlder(shown, pod.CreationTimestamp)}
	case shown.UID == pod.UID:
		return identity{id: pod.UID, is: true}
	}
	return identity{unknown: true}
}

func (b *uidBackend) mayBe(pod, shown *corev1.Pod) bool {
	return shown.UID == pod.UID || shown.UID == "" && !clearlyOlder(shown, pod.CreationTimestamp)
}

func (b *uidBackend) hold(types.UID, *corev1.Pod, *corev1.Pod) {}

func (b *uidBackend) adopt(shown *corev1.Pod, namesake bool) (types.UID, bool) {
	return idOf(shown), namesake || b.identify(shown).unknown
}

func (b *uidBackend) forget(types.UID, *corev1.Pod) {}

var _ podBackend = (*uidBackend)(nil)

// idOf returns the id of a pod that the provider shows, and the API does not have.
func idOf(shown *corev1.Pod) types.UID {
	if shown.UID != "" {
		return shown.UID
	}
	return types.UID("without UID: " + nameOf(shown).String())
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
