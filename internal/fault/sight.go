package fault

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func (p *Provider) get(ctx context.Context, method, namespace, name string, uid types.UID, f func() (*corev1.Pod, error)) (shown *corev1.Pod, err error) {
	err = p.call(ctx, method, types.NamespacedName{Namespace: namespace, Name: name}, uid, finds, func() error {
		pod, err := f()
		if err != nil || pod == nil {
			return err
		}
		shown, err = p.show(ctx, method, pod)
		return err
	})
	if err != nil {
		return nil, err
	}
	return shown, nil
}

func (p *Provider) getStatus(ctx context.Context, namespace, name string, uid types.UID, f func() (*corev1.PodStatus, error)) (status *corev1.PodStatus, err error) {
	err = p.call(ctx, "GetPodStatus", types.NamespacedName{Namespace: namespace, Name: name}, uid, finds, func() error {
		if status, err = f(); err != nil {
			return err
		}
		return p.overlook("GetPodStatus", &corev1.Pod{ObjectMeta: metaOf(namespace, name)})
	})
	if err != nil {
		return nil, err
	}
	return status, nil
}

// show returns how a pod is to be seen: as it is, as another one, or not at all.
// It may also end it.
func (p *Provider) show(ctx context.Context, method string, pod *corev1.Pod) (*corev1.Pod, error) {
	if p.hasVanished(pod.UID) {
		return nil, unknownPod(pod)
	}
	if err := p.overlook(method, pod); err != nil {
		return nil, err
	}
	plan, calm := p.now()
	if calm == nil {
		return pod, nil
	}
	random := p.dice.throw("show " + nameOf(pod).String())
	fault := plan.draw(random, ProviderKinds)
	switch {
	case fault[Vanish] && pod.UID != "":
		p.news.Lock()
		p.lied[nameOf(pod)] = struct{}{}
		p.vanished[pod.UID] = struct{}{}
		p.news.Unlock()
		last := pod.DeepCopy()
		last.DeletionGracePeriodSeconds = ptr.To[int64](0)
		if err := p.inner.DeletePod(ctx, last); err != nil && !errdefs.IsNotFound(err) {
			return nil, fmt.Errorf("cannot have pod %s vanish: %w", nameOf(pod), err)
		}
		return nil, unknownPod(pod)
	case fault[WrongUID] && pod.UID != "":
		p.lie(pod)
		return wrong(pod, random.Uint64()), nil
	}
	return pod, nil
}

// overlook says, at times, that the provider does not know a pod.
func (p *Provider) overlook(method string, pod *corev1.Pod) error {
	if p.hasVanished(pod.UID) {
		return unknownPod(pod)
	}
	if p.isEmpty() {
		if method == "DeletePod" || p.IsToEnd != nil && p.IsToEnd(nameOf(pod)) {
			p.lie(pod)
		}
		return unknownPod(pod)
	}
	plan, calm := p.now()
	if calm == nil || p.dice.throw("overlook "+method+nameOf(pod).String()).Float64() >= plan[Overlook] {
		return nil
	}
	p.lie(pod)
	return unknownPod(pod)
}

func (p *Provider) lie(pod *corev1.Pod) {
	p.news.Lock()
	defer p.news.Unlock()
	p.lied[nameOf(pod)] = struct{}{}
}

func (p *Provider) hasVanished(uid types.UID) bool {
	p.news.Lock()
	defer p.news.Unlock()
	_, vanished := p.vanished[uid]
	return vanished
}

// reappear lets a pod be seen again that had vanished, and is created once more.
func (p *Provider) reappear(pod *corev1.Pod) {
	p.news.Lock()
	defer p.news.Unlock()
	delete(p.vanished, pod.UID)
}

func unknownPod(pod *corev1.Pod) error {
	return errdefs.NotFoundf("there is no pod %s, by a fault", nameOf(pod))
}

func wrong(pod *corev1.Pod, number uint64) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.UID = types.UID(fmt.Sprintf("wrong-%x", number))
	return pod
}
