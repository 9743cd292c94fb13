package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// pageSize is the maximum number of objects in a response to a list.
const pageSize = 500

// GetPod implements node.PodLifecycleHandler.
func (p *Provider) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return p.GetPodByUID(ctx, namespace, name, "")
}

// GetPodByUID implements node.PodUIDLifecycleHandler. It adopts a remote pod of an
// earlier provider. A remote pod that was lost while none was running is created again,
// if configured.
func (p *Provider) GetPodByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	if next := p.replacementOf(uid); next != nil {
		return p.homePodWithStatus(next.remote, p.replacementStatus(next.remote)), nil
	}
	remote, err := p.cachedPod(namespace, name, uid), error(nil)
	switch {
	case remote != nil:
	case p.isNew(namespace, name, uid):
		if err = p.ensureIdentified(ctx); err == nil {
			err = errdefs.NotFoundf("pod %s/%s is not in the remote cluster yet", namespace, name)
		}
	default:
		remote, err = p.find(ctx, namespace, name, uid)
	}
	if errdefs.IsNotFound(err) {
		remote, err = p.standInFor(namespace, name, uid, err)
	}
	if err != nil {
		return nil, err
	}
	p.adopt(remote)
	pod := p.observedPod(remote)
	if !isStandIn(remote) {
		pod.Status.ObservedGeneration = translate.GenerationOf(remote)
	}
	return pod, nil
}

// observedPod returns the home pod with the status, labels and annotations that the
// remote pod shows: from the latter the pod controller sees whether an update is
// needed.
func (p *Provider) observedPod(remote *corev1.Pod) *corev1.Pod {
	status := p.status(remote)
	if next := p.replacementOf(translate.UIDOf(remote)); next != nil && next.remote.UID == remote.UID { // its last status is outdated
		status = p.replacementStatus(remote)
	}
	pod := p.homePodWithStatus(remote, status)
	if !isStandIn(remote) {
		pod.Labels, pod.Annotations = p.translate.ObservedMetadata(pod, remote)
	}
	return pod
}

// cachedPod returns the remote pod of a home pod from the cache, or nil. Then it may
// still exist.
func (p *Provider) cachedPod(namespace, name string, uid types.UID) *corev1.Pod {
	at, err := p.remoteName(namespace, name, uid)
	if err != nil || uid == "" || !p.informer.HasSynced() || p.listWatch.check() != nil {
		return nil
	}
	obj, ok, err := p.informer.GetStore().GetByKey(at.String())
	if err != nil || !ok {
		return nil
	}
	if remote, ok := obj.(*corev1.Pod); ok && translate.UIDOf(remote) == uid {
		return remote
	}
	return nil
}

// isNew reports whether a home pod is to be created and, as far as its status and the cache
// of remote pods show, never was. CreatePod finds a remote pod that there is all the same;
// once it has tried, or when the pod is to go, only the remote API server's answer counts.
func (p *Provider) isNew(namespace, name string, uid types.UID) bool {
	local, err := p.home.Pods.Pods(namespace).Get(name)
	if err != nil || local.UID != uid || local.DeletionTimestamp != nil {
		return false
	}
	status := &local.Status
	return (status.Phase == "" || status.Phase == corev1.PodPending) && status.StartTime == nil && len(status.ContainerStatuses) == 0 &&
		!p.reflector.IsRegistered(uid) && p.informer.HasSynced() && p.listWatch.check() == nil && len(p.observedPods(uid)) == 0
}

// adopt registers the home pod of a remote pod, and queues the removal of labels and
// annotations that home has removed.
func (p *Provider) adopt(remote *corev1.Pod) {
	local := p.homePod(remote)
	if local == nil {
		return
	}
	p.adoptPod(local, remote)
	if p.translate.MetadataRemoved(local, remote) {
		p.queue.Add(workItem{uid: local.UID, removeMetadata: true})
	}
}

// adoptPod registers a home pod whose remote pod is of an earlier process, which need not
// have added the ephemeral containers yet.
func (p *Provider) adoptPod(local, remote *corev1.Pod) {
	if p.reflector.IsRegistered(local.UID) {
		return
	}
	p.reflector.AdoptPod(local, remote)
	if !isStandIn(remote) && translate.HasEphemeralRecord(remote) && len(translate.MissingEphemeral(local, remote)) > 0 {
		p.addEphemeralLater(local)
	}
}

// GetPodStatus implements node.PodLifecycleHandler.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	return p.GetPodStatusByUID(ctx, namespace, name, "")
}

// GetPodStatusByUID implements node.PodUIDLifecycleHandler.
func (p *Provider) GetPodStatusByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	pod, err := p.GetPodByUID(ctx, namespace, name, uid)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods implements node.PodLifecycleHandler. Once the cache has synced it returns the
// pods in the cache, so that a lost connection does not look like an empty list, and a
// slow one does not transfer all pods each minute. Pods that wait to be created again
// are included. Before, it lists from the remote API server.
func (p *Provider) GetPods(ctx context.Context) ([]*corev1.Pod, error) {
	if err := p.listWatch.check(); err != nil { // the cache is outdated
		return nil, errdefs.AsUnavailable(remoteError("list and watch the pods", err))
	}
	if p.informer.HasSynced() {
		var pods []*corev1.Pod
		for _, remote := range append(p.remotePods(), p.awaitingReplacement()...) {
			pods = append(pods, p.observedPod(remote))
		}
		return pods, nil
	}
	if err := p.ensureIdentified(ctx); err != nil {
		return nil, err
	}
	return p.list(ctx)
}

func (p *Provider) list(ctx context.Context) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	options := metav1.ListOptions{LabelSelector: p.translate.Home.Selector(), Limit: pageSize}
	for {
		list, err := p.remote.CoreV1().Pods(p.namespace).List(ctx, options)
		if err != nil {
			return nil, errdefs.AsUnavailable(fmt.Errorf("cannot list the pods in the remote cluster: %w", err))
		}
		for i := range list.Items {
			remote := &list.Items[i]
			p.adopt(remote)
			pods = append(pods, p.observedPod(remote))
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return pods, nil
		}
	}
}

// status returns the status of the home pod of a remote pod.
func (p *Provider) status(remote *corev1.Pod) corev1.PodStatus {
	if isStandIn(remote) {
		return p.replacementStatus(remote)
	}
	status := p.translate.Status(remote)
	switch {
	case p.unscheduledFailure(remote) != "":
		return translate.Unschedulable(status, p.unscheduledFailure(remote), metav1.Now())
	case p.replacesEnded(remote):
		return p.replacementStatus(remote)
	case p.isPastDeadline(remote) && !p.failsAtDeadline(remote):
		return translate.Unready(status, "RemotePodLost", deadlineMessage)
	case p.isPastDeadline(remote):
		return translate.Deleted(status, deadlineMessage, *remote.DeletionTimestamp)
	}
	if local := p.homePod(remote); local != nil {
		return translate.Undisrupted(status, remote, local)
	}
	return status
}
