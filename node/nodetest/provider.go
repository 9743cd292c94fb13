package nodetest

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Polled is a provider that is asked for the statuses of its pods: it implements
// node.PodLifecycleHandler.
type Polled struct{ Backend *Backend }

// Notifying is a provider that notifies of them: it implements node.PodNotifier, too.
type Notifying struct{ Polled }

// ByUID is a provider that knows its pods by UID: it implements
// node.PodUIDLifecycleHandler, too.
type ByUID struct{ Polled }

// Polled returns the Backend's provider that is asked.
func (b *Backend) Polled() Polled { return Polled{b} }

// Notifying returns the Backend's provider that notifies.
func (b *Backend) Notifying() Notifying { return Notifying{b.Polled()} }

// ByUID returns the Backend's provider that knows pods by UID. From then on the Backend
// does so: it may have several pods of one name. It is called before there are pods.
func (b *Backend) ByUID() ByUID {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byUID = true
	return ByUID{Polled{b}}
}

// CreatePod implements node.PodLifecycleHandler.
func (p Polled) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	b := p.Backend
	s := b.called("create %s %s", pod.Name, pod.UID)
	defer b.enter("create "+string(pod.UID), b.key(pod))()
	if s.OnCreate != nil {
		if err := s.OnCreate(ctx, pod); err != nil {
			return err
		}
	}
	b.Notify(b.Hold(pod, corev1.PodRunning))
	return nil
}

// UpdatePod implements node.PodLifecycleHandler.
func (p Polled) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	b := p.Backend
	s := b.called("update %s %s", pod.Name, pod.UID)
	defer b.enter("update "+string(pod.UID), b.key(pod))()
	if s.OnUpdate != nil {
		return s.OnUpdate(ctx, pod)
	}
	return nil
}

// DeletePod implements node.PodLifecycleHandler.
func (p Polled) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	b := p.Backend
	s := b.called("delete %s %s grace %d", pod.Name, pod.UID, *pod.DeletionGracePeriodSeconds)
	defer b.enter("delete "+string(pod.UID), b.key(pod))()
	if s.OnDelete != nil {
		if err := s.OnDelete(ctx, pod); err != nil {
			return err
		}
	}
	b.mu.Lock()
	held, lingers := b.pods[b.key(pod)], b.s.Lingers
	if !lingers {
		delete(b.pods, b.key(pod))
	}
	b.mu.Unlock()
	if held == nil {
		return errdefs.NotFoundf("no pod %s", pod.Name)
	}
	if !lingers {
		held = held.DeepCopy()
		held.Status = StatusOf(held, corev1.PodSucceeded)
		held.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		b.Notify(held)
	}
	return nil
}

// GetPod implements node.PodLifecycleHandler.
func (p Polled) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return p.Backend.get(name, namespace+"/"+name)
}

// GetPodStatus implements node.PodLifecycleHandler.
func (p Polled) GetPodStatus(_ context.Context, namespace, name string) (*corev1.PodStatus, error) {
	return p.Backend.status(name, namespace+"/"+name)
}

// GetPods implements node.PodLifecycleHandler.
func (p Polled) GetPods(context.Context) (pods []*corev1.Pod, _ error) {
	b := p.Backend
	s := b.called("list")
	if s.OnList != nil {
		if err := s.OnList(); err != nil {
			return nil, err
		}
	}
	if s.List != nil {
		return s.List(), nil
	}
	b.mu.Lock()
	keys := slices.Sorted(maps.Keys(b.pods))
	b.mu.Unlock()
	for _, key := range keys {
		if pod := b.find(key); pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// NotifyPods implements node.PodNotifier.
func (p Notifying) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	b := p.Backend
	b.called("notify")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notifier = notify
}

// GetPod implements node.PodLifecycleHandler. It is not to be called.
func (p ByUID) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	p.Backend.called("get by name")
	return nil, errdefs.InvalidInput("ask by UID")
}

// GetPodStatus implements node.PodLifecycleHandler. It is not to be called.
func (p ByUID) GetPodStatus(context.Context, string, string) (*corev1.PodStatus, error) {
	p.Backend.called("status by name")
	return nil, errdefs.InvalidInput("ask by UID")
}

// GetPodByUID implements node.PodUIDLifecycleHandler.
func (p ByUID) GetPodByUID(_ context.Context, _, name string, uid types.UID) (*corev1.Pod, error) {
	return p.Backend.get(name, string(uid))
}

// GetPodStatusByUID implements node.PodUIDLifecycleHandler.
func (p ByUID) GetPodStatusByUID(_ context.Context, _, name string, uid types.UID) (*corev1.PodStatus, error) {
	return p.Backend.status(name, string(uid))
}

// get is the question for a pod.
func (b *Backend) get(name, key string) (*corev1.Pod, error) {
	s := b.called("get %s", name)
	defer b.enter("get", key)()
	if s.OnGet != nil {
		if err := s.OnGet(name); err != nil {
			return nil, err
		}
	}
	return b.mustFind(name, key)
}

// status is the question for a pod's status.
func (b *Backend) status(name, key string) (*corev1.PodStatus, error) {
	s := b.called("status %s", name)
	if s.OnStatus != nil {
		if err := s.OnStatus(name); err != nil {
			return nil, err
		}
	}
	pod, err := b.mustFind(name, key)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (b *Backend) mustFind(name, key string) (*corev1.Pod, error) {
	if pod := b.find(key); pod != nil {
		return pod, nil
	}
	return nil, errdefs.NotFoundf("no pod %s", name)
}
