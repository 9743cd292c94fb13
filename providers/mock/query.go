package mock

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// GetPod implements node.PodLifecycleHandler. The pod is the caller's own.
func (p *Provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	p.mu.RLock()
	h, err := p.get(namespace, name)
	if err != nil {
		p.mu.RUnlock()
		return nil, err
	}
	pod, status := h.pod, h.status(p.cfg.HostIP)
	p.mu.RUnlock()
	whole, err := pod.whole()
	if err != nil {
		return nil, err
	}
	whole.Status = status
	return whole, nil
}

// GetPodStatus implements node.PodLifecycleHandler.
func (p *Provider) GetPodStatus(_ context.Context, namespace, name string) (*corev1.PodStatus, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	h, err := p.get(namespace, name)
	if err != nil {
		return nil, err
	}
	status := h.status(p.cfg.HostIP)
	return &status, nil
}

// GetPods implements node.PodLifecycleHandler. The pods are in the order of
// namespace and name. They are for reading, and do not change any more. They have the
// status, the labels and annotations, and of the spec the node, the restart policy and the
// containers' names, images and resources: GetPod has all of it.
func (p *Provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	p.mu.RLock()
	pods := make([]*corev1.Pod, 0, len(p.pods))
	for _, h := range p.pods {
		pods = append(pods, h.brief(p.cfg.HostIP))
	}
	p.mu.RUnlock()
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// brief returns the pod with its status, and with what a list shows of the rest. p.mu is held.
func (h *held) brief(hostIP string) *corev1.Pod {
	pod := h.pod.brief()
	pod.Status = h.status(hostIP)
	return pod
}
