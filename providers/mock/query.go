package mock

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	return pod.with(status)
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
// namespace and name, and the caller's own.
func (p *Provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	p.mu.RLock()
	held := make([]kept, 0, len(p.pods))
	statuses := make(map[types.NamespacedName]corev1.PodStatus, len(p.pods))
	for name, h := range p.pods {
		held = append(held, h.pod)
		statuses[name] = h.status(p.cfg.HostIP)
	}
	p.mu.RUnlock()
	slices.SortFunc(held, func(a, b kept) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	pods := make([]*corev1.Pod, 0, len(held))
	for i := range held {
		pod, err := held[i].with(statuses[key(held[i].namespace, held[i].name)])
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// brief returns the pod with its status, and with what is shown of the rest in a notification. p.mu is held.
func (h *held) brief(hostIP string) *corev1.Pod {
	pod := h.pod.brief()
	pod.Status = h.status(hostIP)
	return pod
}
