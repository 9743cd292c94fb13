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
	pod := h.pod
	p.mu.RUnlock()
	return pod.DeepCopy(), nil
}

// GetPodStatus implements node.PodLifecycleHandler.
func (p *Provider) GetPodStatus(_ context.Context, namespace, name string) (*corev1.PodStatus, error) {
	p.mu.RLock()
	h, err := p.get(namespace, name)
	if err != nil {
		p.mu.RUnlock()
		return nil, err
	}
	pod := h.pod
	p.mu.RUnlock()
	return pod.Status.DeepCopy(), nil
}

// GetPods implements node.PodLifecycleHandler. The pods are in the order of
// namespace and name. They are for reading: a provider with many is asked again and
// again, and copies would be most of what it costs. They do not change any more.
func (p *Provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	p.mu.RLock()
	pods := make([]*corev1.Pod, 0, len(p.pods))
	for _, h := range p.pods {
		pods = append(pods, h.pod)
	}
	p.mu.RUnlock()
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}
