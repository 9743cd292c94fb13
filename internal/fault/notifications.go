package fault

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// notifications is a Provider before a node.PodNotifier.
type notifications struct {
	p     *Provider
	inner node.PodNotifier
}

func (n notifications) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	n.p.news.Lock()
	n.p.notify = notify
	n.p.news.Unlock()
	n.inner.NotifyPods(ctx, func(pod *corev1.Pod) {
		if ctx.Err() == nil {
			n.p.forward(pod)
		}
	})
}

// forward passes a notification on, or not, or more than that.
func (p *Provider) forward(pod *corev1.Pod) {
	name := nameOf(pod)
	p.news.Lock()
	notify, before := p.notify, p.last[name]
	_, vanished := p.vanished[pod.UID]
	p.last[name] = pod.DeepCopy()
	p.news.Unlock()
	if vanished {
		return
	}
	plan, calm := p.now()
	if calm == nil {
		notify(pod)
		return
	}
	random := p.dice.throw("notify " + name.String())
	fault := plan.draw(random, ProviderKinds)
	if fault[LostNotice] {
		return
	}
	if fault[WrongUID] {
		p.lie(pod)
		pod = wrong(pod, random.Uint64())
	}
	notify(pod)
	if fault[RepeatedNotice] {
		notify(pod)
	}
	if fault[StaleNotice] && before != nil {
		notify(before)
	}
}

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

var _ node.PodNotifier = notifications{}
