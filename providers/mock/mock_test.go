package mock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

var ctx = context.Background()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newProvider makes a provider that is closed at the end of the test.
func newProvider(t testing.TB, cfg mock.Config, opts ...mock.Option) *mock.Provider {
	t.Helper()
	p, err := mock.New(cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// newPod makes a pod with one container, and annotations like
// "run-for", "3s".
func newPod(name string, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Generation: 1,
			Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}},
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		pod.Annotations["mock.virtual-kubelet.io/"+annotations[i]] = annotations[i+1]
	}
	return pod
}

func mustCreate(t testing.TB, p *mock.Provider, pod *corev1.Pod) {
	t.Helper()
	if err := p.CreatePod(ctx, pod); err != nil {
		t.Fatal(err)
	}
}

func mustStatus(t testing.TB, p *mock.Provider, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	s, err := p.GetPodStatus(ctx, pod.Namespace, pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func conditionOf(s *corev1.PodStatus, t corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range s.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return ""
}

// receiver keeps what NotifyPods delivers.
type receiver struct {
	mu   sync.Mutex
	pods []*corev1.Pod
}

func receive(t *testing.T, p *mock.Provider) *receiver {
	r := &receiver{}
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	p.NotifyPods(ctx, func(pod *corev1.Pod) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pods = append(r.pods, pod)
	})
	return r
}

// phases returns the phases of one pod as they were notified.
func (r *receiver) phases(name string) (phases []corev1.PodPhase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pod := range r.pods {
		if pod.Name == name {
			phases = append(phases, pod.Status.Phase)
		}
	}
	return phases
}

func (r *receiver) last() *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pods) == 0 {
		return nil
	}
	return r.pods[len(r.pods)-1]
}

// inBubble runs f with time that stands still until everybody waits. What f
// makes ends with it.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// pass lets time pass, and what it brings happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantPhases(t *testing.T, r *receiver, name string, want ...corev1.PodPhase) {
	t.Helper()
	if got := r.phases(name); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("notified phases %v, want %v", got, want)
	}
}
