package node

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// orphanAfter is how many times in a row a pod of the provider has to be seen
// without its counterpart in the API before it is deleted.
const orphanAfter = 3

// spareRounds is for how many rounds a pod is left alone that was no orphan by
// the word of the API server: another node's, say, in a backend that is shared.
const spareRounds = 60

// orphans counts how often pods of the provider were seen that the API does not
// know: they went while nobody watched. Only the patrol uses it.
type orphans struct {
	seen map[orphan]int
}

type orphan struct {
	key string
	uid types.UID
}

// cleanUp deletes orphans in the provider. It runs once the caches have synced.
func (pc *PodController) cleanUp(ctx context.Context, found []*corev1.Pod) {
	seen := map[orphan]int{}
	for _, pod := range found {
		if ctx.Err() != nil {
			return
		}
		if !pc.isOrphan(ctx, pod) {
			continue
		}
		o := orphan{keyOf(pod), pod.UID}
		seen[o] = pc.orphans.seen[o] + 1
		if seen[o] >= orphanAfter && !pc.deleteOrphan(ctx, pod) {
			seen[o] = -spareRounds
		}
	}
	pc.orphans.seen = seen
}

// isOrphan tells whether neither the cache nor a record has a pod of this name.
// A name that they have is the sync's business, whatever the UID: unless the
// provider goes by UIDs, and can hold two pods of one name.
func (pc *PodController) isOrphan(ctx context.Context, pod *corev1.Pod) bool {
	if !pc.mayBeOurs(ctx, pod) {
		return false
	}
	byUID := pc.backend.byUID != nil && pod.UID != ""
	if r := pc.records.get(keyOf(pod)); r != nil {
		r.mu.Lock()
		other := byUID && r.pod != nil && r.uid() != pod.UID
		r.mu.Unlock()
		if !other {
			return false
		}
	}
	ours, err := pc.pods.Get(pod.Namespace, pod.Name)
	return apierrors.IsNotFound(err) || err == nil && byUID && ours.UID != pod.UID
}

// namesake returns the API server's pod of that name. To a node's own identity
// the API server does not say that a pod is gone, but that it may not read it;
// then the node's pods are asked for, which it may list.
func (pc *PodController) namesake(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	named, err := pc.client.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || pod.Spec.NodeName == "" {
		return named, err
	}
	is := fields.Set{"metadata.name": pod.Name, "spec.nodeName": pod.Spec.NodeName}
	list, listErr := pc.client.Pods(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: is.String()})
	if listErr != nil {
		return nil, errors.Join(err, listErr)
	}
	for i := range list.Items {
		if list.Items[i].Name == pod.Name {
			return &list.Items[i], nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
}

// deleteOrphan makes sure with the API server itself, then deletes. What fails
// is tried again in the next round. It returns false if the pod is no orphan.
func (pc *PodController) deleteOrphan(ctx context.Context, pod *corev1.Pod) bool {
	ctx = withPod(ctx, pod)
	logger := log.G(ctx)
	named, err := pc.namesake(ctx, pod)
	switch {
	case err == nil && (pc.identity.same(named, pod) || pod.Spec.NodeName == "" && pc.backend.byUID == nil):
		return false // on another node, or not in the cache yet
	case err == nil: // another pod of that name, elsewhere
	case !apierrors.IsNotFound(err):
		logger.WithError(err).Warn("Cannot make sure that a pod of the provider is an orphan; it is left alone")
		return true
	}
	if !pc.isOrphan(ctx, pod) {
		return true // a new pod has taken the name meanwhile: the sync sees to the old one first
	}
	if _, err := pc.backend.delete(ctx, pod, true, time.Now()); err != nil {
		logger.WithError(err).Warn("Cannot delete an orphan in the provider; it is tried again")
		return true
	}
	logger.Info("Deleted an orphan in the provider: the API has no such pod")
	return true
}
