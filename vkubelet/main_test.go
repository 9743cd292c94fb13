package vkubelet

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// holder is a Provider with the six methods and nothing else: what it is given
// runs.
type holder struct {
	mu   sync.Mutex
	pods map[string]*corev1.Pod
}

func (h *holder) CreatePod(_ context.Context, pod *corev1.Pod) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pods == nil {
		h.pods = map[string]*corev1.Pod{}
	}
	pod.Status.Phase = corev1.PodRunning
	h.pods[pod.Namespace+"/"+pod.Name] = pod
	return nil
}

func (h *holder) UpdatePod(context.Context, *corev1.Pod) error { return nil }

func (h *holder) DeletePod(_ context.Context, pod *corev1.Pod) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pods, pod.Namespace+"/"+pod.Name)
	return nil
}

func (h *holder) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pod := h.pods[namespace+"/"+name]; pod != nil {
		return pod.DeepCopy(), nil
	}
	return nil, errdefs.NotFoundf("no pod %s/%s", namespace, name)
}

func (h *holder) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := h.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (h *holder) GetPods(context.Context) ([]*corev1.Pod, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.pods)), nil
}

func (h *holder) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.pods))
}

func newPod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "main", Image: "pause"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}
