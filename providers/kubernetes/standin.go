package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// recordSeen records that the provider has seen a pod: it observes all changes of its
// remote pod from then on.
func (p *Provider) recordSeen(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[uid] = struct{}{}
}

// forgetSeen drops the pods that are in neither cluster any more.
func (p *Provider) forgetSeen(remote map[types.UID]struct{}) {
	local, err := p.home.Pods.List(labels.Everything())
	if err != nil {
		return
	}
	kept := maps.Clone(remote)
	for _, pod := range local {
		kept[pod.UID] = struct{}{}
	}
	p.forgetBackoffs(kept)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.seen, func(uid types.UID, _ struct{}) bool { _, ok := kept[uid]; return !ok })
}

// standInFor is called for a home pod without a remote pod; notFound is the error of
// the lookup. If the pod was running before this provider started, its remote pod was
// lost while none was running. If configured, it is created again, and until then the
// returned stand-in is shown: see isStandIn.
func (p *Provider) standInFor(namespace, name string, uid types.UID, notFound error) (*corev1.Pod, error) {
	local, err := p.home.Pods.Pods(namespace).Get(name)
	if p.cfg.Evicted != Restart || err != nil || uid == "" || local.UID != uid || local.DeletionTimestamp != nil ||
		local.Status.Phase != corev1.PodRunning || !translate.MayRestart(local, &local.Status) {
		return nil, notFound
	}
	if !p.podHandler.HasSynced() { // the handler records pods in other namespaces of an earlier configuration, too
		return nil, errdefs.AsUnavailable(errors.New("the cache of remote pods has not synced"))
	}
	p.mu.Lock()
	_, seen := p.seen[uid]
	p.mu.Unlock()
	if seen {
		return nil, notFound
	}
	standIn := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      p.translate.Home.LabelsOf(namespace, uid),
			Annotations: map[string]string{translate.AnnotationName: name},
		},
		Status: *local.Status.DeepCopy(),
	}
	p.scheduleReplacement(standIn)
	return standIn, nil
}

// isStandIn reports whether a remote pod is a stand-in for one that was lost. It has
// the status of the home pod.
func isStandIn(remote *corev1.Pod) bool { return remote.UID == "" }

// podAgain returns another remote pod of a home pod, in place of remote: see
// translate.Recreate.
func (p *Provider) podAgain(ctx context.Context, local, remote *corev1.Pod) (*corev1.Pod, error) {
	unplaced := local.DeepCopy()
	unplaced.Status.PodIP, unplaced.Status.PodIPs = "", nil // they are those of remote
	pod, err := p.resolveEnvironment(ctx, unplaced, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve the environment of the pod: %v", err)
	}
	next, err := p.remotePod(ctx, pod)
	if err != nil {
		return nil, err
	}
	if err := p.ensureNamespace(ctx, next.Namespace); err != nil {
		return nil, err
	}
	if err := p.reflector.RegisterPod(ctx, pod, next); err != nil {
		return nil, fmt.Errorf("cannot copy what the pod needs to the remote cluster: %v", err)
	}
	translate.AddRestarts(next, &local.Status)
	if isStandIn(remote) { // which of them it had is not known: none is to run twice
		remote = remote.DeepCopy()
		remote.Spec.EphemeralContainers = local.Spec.EphemeralContainers
	}
	translate.RecordEphemeral(next, remote)
	return next, nil
}

// resolveEnvironment returns a home pod with its environment resolved, as the pod
// controller does before CreatePod, or before UpdatePod if its remote pod is running.
func (p *Provider) resolveEnvironment(ctx context.Context, local, running *corev1.Pod) (*corev1.Pod, error) {
	// After a start this may come before the controller has looked at the pod: what pods name
	// that are not followed is read one by one, which the node's rights do not allow.
	p.home.Objects.Follow(local)
	defer func() {
		if now, err := p.home.Pods.Pods(local.Namespace).Get(local.Name); apierror.IsNotFound(err) || err == nil && now.UID != local.UID {
			p.home.Objects.Forget(local.UID) // the controller may have done so before Follow
		}
	}()
	pod := local.DeepCopy()
	options := podenv.Options{
		HostIPs: p.home.HostIPs(), NodeAllocatable: p.home.NodeAllocatable(),
		Started: func(container string) bool { return translate.HasContainer(running, container) },
	}
	_, err := podenv.Resolve(pod, podenv.NewSource(ctx, p.home.Objects, p.home.Services), options)
	return pod, err
}

// environmentOf returns the data of the Secret with the environment of a pod.
func (p *Provider) environmentOf(ctx context.Context, local *corev1.Pod) (map[string][]byte, error) {
	pod, err := p.resolveEnvironment(ctx, local, nil)
	if err != nil {
		return nil, err
	}
	return p.translate.Environment(pod), nil
}
