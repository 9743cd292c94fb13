package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// pageSize is how many remote pods are asked for at a time.
const pageSize = 500

// GetPod implements node.PodLifecycleHandler.
func (p *Provider) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return p.GetPodByUID(ctx, namespace, name, "")
}

// GetPodByUID implements node.PodUIDLifecycleHandler. A pod that was here before
// the provider began is taken up; one that was lost then is made again, where the
// configuration says so.
func (p *Provider) GetPodByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	if next := p.waitingAgain(uid); next != nil {
		return p.atHome(next.remote, p.waitingStatus(next.remote)), nil
	}
	remote, err := p.known(namespace, name, uid), error(nil)
	if remote == nil {
		remote, err = p.find(ctx, namespace, name, uid)
	}
	if errdefs.IsNotFound(err) {
		remote, err = p.lost(namespace, name, uid, err)
	}
	if err != nil {
		return nil, err
	}
	p.takeUp(remote)
	pod := p.shown(remote)
	if !isLost(remote) {
		pod.Status.ObservedGeneration = translate.GenerationOf(remote)
	}
	return pod, nil
}

// shown returns the pod at home of a remote one with the labels and annotations that
// this has, by which the node sees whether to bring it up to date.
func (p *Provider) shown(remote *corev1.Pod) *corev1.Pod {
	status := p.status(remote)
	if next := p.waitingAgain(translate.UIDOf(remote)); next != nil && next.remote.UID == remote.UID { // what it was last is no more
		status = p.waitingStatus(remote)
	}
	pod := p.atHome(remote, status)
	if !isLost(remote) {
		pod.Labels, pod.Annotations = p.translate.ObservedMetadata(pod, remote)
	}
	return pod
}

// known returns the remote pod of one at home as it was last heard of, or nil: then
// it may have come since.
func (p *Provider) known(namespace, name string, uid types.UID) *corev1.Pod {
	at, err := p.translate.PodName(namespace, name)
	if err != nil || uid == "" || !p.informer.HasSynced() || p.feed.check() != nil {
		return nil
	}
	obj, ok, err := p.informer.GetStore().GetByKey(at.String())
	if err != nil || !ok {
		return nil
	}
	if remote, ok := obj.(*corev1.Pod); ok && translate.UIDOf(remote) == uid && translate.NameOf(remote) == (types.NamespacedName{Namespace: namespace, Name: name}) {
		return remote
	}
	return nil
}

// takeUp keeps up what a remote pod needs whose pod at home is known, and has taken
// back there what was at home.
func (p *Provider) takeUp(remote *corev1.Pod) {
	local := p.local(remote)
	if local == nil {
		return
	}
	p.reflector.AdoptPod(local)
	if p.translate.MetadataRemoved(local, remote) {
		p.errands.Add(errand{uid: local.UID, takeBack: true})
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

// GetPods implements node.PodLifecycleHandler. Once the remote pods are known they are
// those that were heard of, so that a connection that is lost does not make a list of
// no pods, and one that is slow does not carry all of them each minute; those that wait
// to be created again are among them. Before, the remote API server is asked.
func (p *Provider) GetPods(ctx context.Context) ([]*corev1.Pod, error) {
	if err := p.feed.check(); err != nil { // what is known is old
		return nil, errdefs.AsUnavailable(remoteError("list and watch the pods", err))
	}
	if p.informer.HasSynced() {
		var pods []*corev1.Pod
		for _, remote := range append(p.remotePods(), p.awaited()...) {
			pods = append(pods, p.shown(remote))
		}
		return pods, nil
	}
	if err := p.identified(ctx); err != nil {
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
			p.takeUp(remote)
			pods = append(pods, p.shown(remote))
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return pods, nil
		}
	}
}

// status is what a remote pod says of the one at home.
func (p *Provider) status(remote *corev1.Pod) corev1.PodStatus {
	if isLost(remote) {
		return p.waitingStatus(remote)
	}
	status := p.translate.Status(remote)
	switch {
	case p.givenUpFor(remote) != "":
		return translate.Unschedulable(status, p.givenUpFor(remote), metav1.Now())
	case p.replaces(remote):
		return p.waitingStatus(remote)
	case p.hasOutstayed(remote) && !p.failsWhenOverdue(remote):
		return translate.Unready(status, "RemotePodLost", overdueMessage)
	case p.hasOutstayed(remote):
		return translate.Deleted(status, overdueMessage, *remote.DeletionTimestamp)
	}
	return status
}
