package nodetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

var (
	_ node.PodLifecycleHandler    = nodetest.Polled{}
	_ node.PodNotifier            = nodetest.Notifying{}
	_ node.PodUIDLifecycleHandler = nodetest.ByUID{}
)

func pod(name, uid string) *corev1.Pod {
	grace := int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), DeletionGracePeriodSeconds: &grace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
}

func TestNotifying(t *testing.T) {
	ctx := t.Context()
	backend := nodetest.New()
	provider := backend.Notifying()
	var phases []corev1.PodPhase
	provider.NotifyPods(ctx, func(p *corev1.Pod) { phases = append(phases, p.Status.Phase) })
	if err := provider.CreatePod(ctx, pod("web", "1")); err != nil {
		t.Fatal(err)
	}
	backend.SetPhase("web", corev1.PodFailed)
	if err := provider.DeletePod(ctx, pod("web", "1")); err != nil {
		t.Fatal(err)
	}
	if want := []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded}; !slices.Equal(phases, want) {
		t.Errorf("it has notified of %v, want %v", phases, want)
	}
	want := []string{"notify", "create web 1", "delete web 1 grace 30"}
	if calls := backend.TakeCalls(); !slices.Equal(calls, want) {
		t.Errorf("the calls were %q, want %q", calls, want)
	}
	if err := provider.DeletePod(ctx, pod("web", "1")); !errdefs.IsNotFound(err) {
		t.Errorf("the deletion of a pod that is not there: %v", err)
	}
}

func TestByUID(t *testing.T) {
	ctx := t.Context()
	backend := nodetest.New()
	provider := backend.ByUID()
	backend.Hold(pod("web", "1"), corev1.PodRunning)
	backend.Hold(pod("web", "2"), corev1.PodPending)
	status, err := provider.GetPodStatusByUID(ctx, "default", "web", "2")
	if err != nil || status.Phase != corev1.PodPending || status.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("the status is %+v (%v)", status, err)
	}
	if pods, err := provider.GetPods(ctx); err != nil || len(pods) != 2 {
		t.Errorf("it lists %d pods (%v)", len(pods), err)
	}
	if _, err := provider.GetPod(ctx, "default", "web"); err == nil {
		t.Error("it answers a question by name, which has two answers")
	}
}

func TestScript(t *testing.T) {
	ctx := t.Context()
	backend := nodetest.New()
	provider := backend.Polled()
	down := errors.New("the backend is down")
	backend.Script(func(s *nodetest.Script) {
		s.OnCreate = func(context.Context, *corev1.Pod) error { return down }
		s.Lingers = true
		s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = ""; return p }
	})
	if err := provider.CreatePod(ctx, pod("web", "1")); !errors.Is(err, down) || backend.Pod("web") != nil {
		t.Errorf("CreatePod: %v, and it has %v", err, backend.Pod("web"))
	}
	backend.Hold(pod("web", "1"), corev1.PodRunning)
	if err := provider.DeletePod(ctx, pod("web", "1")); err != nil {
		t.Error(err)
	}
	if found, err := provider.GetPod(ctx, "default", "web"); err != nil || found.UID != "" {
		t.Errorf("it shows %v (%v)", found, err)
	}
	if uids := backend.Holds("web"); !slices.Equal(uids, []types.UID{"1"}) {
		t.Errorf("it holds %v", uids)
	}
	back := backend.Empty()
	if pods, err := provider.GetPods(ctx); err != nil || len(pods) != 0 {
		t.Errorf("while it is empty it lists %d pods (%v)", len(pods), err)
	}
	back()
	if lost := backend.Forget("web"); lost == nil || backend.Pod("web") != nil {
		t.Errorf("it has lost %v, and has %v", lost, backend.Pod("web"))
	}
}

// Two calls about one pod at once are an overlap, two about two pods are none.
func TestOverlaps(t *testing.T) {
	ctx := t.Context()
	backend := nodetest.New()
	provider := backend.Polled()
	backend.Script(func(s *nodetest.Script) {
		s.OnCreate = func(ctx context.Context, p *corev1.Pod) error {
			if p.Name == "a" {
				return errors.Join(provider.UpdatePod(ctx, pod("a", "1")), provider.UpdatePod(ctx, pod("b", "2")))
			}
			return nil
		}
	})
	if err := provider.CreatePod(ctx, pod("a", "1")); err != nil {
		t.Fatal(err)
	}
	if overlaps := backend.Overlaps(); !slices.Equal(overlaps, []string{"create 1 and update 1"}) {
		t.Errorf("the overlaps are %q", overlaps)
	}
}
