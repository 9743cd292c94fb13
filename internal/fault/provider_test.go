package fault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// one is a provider of one pod.
type one struct {
	node.PodLifecycleHandler
	pod              *corev1.Pod
	created, deleted int
	notify           func(*corev1.Pod)
}

func newOne() *one {
	return &one{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Status: corev1.PodStatus{Message: "0"}}}
}

func (o *one) CreatePod(context.Context, *corev1.Pod) error                { o.created++; return nil }
func (o *one) DeletePod(context.Context, *corev1.Pod) error                { o.deleted++; return nil }
func (o *one) GetPod(context.Context, string, string) (*corev1.Pod, error) { return o.pod, nil }
func (o *one) GetPods(context.Context) ([]*corev1.Pod, error)              { return []*corev1.Pod{o.pod}, nil }
func (o *one) NotifyPods(_ context.Context, notify func(*corev1.Pod))      { o.notify = notify }

func TestCalmProviderIsTheProvider(t *testing.T) {
	inner := newOne()
	p := fault.NewProvider(inner, 1)
	p.Break(fault.Plan{fault.Error: 1, fault.Vanish: 1})
	p.Calm()
	h := p.Handler()
	if pod, err := h.GetPod(t.Context(), "ns", "p"); pod != inner.pod || err != nil {
		t.Errorf("GetPod: %v, %v", pod, err)
	}
	if _, ok := h.(node.PodNotifier); !ok {
		t.Error("it does not notify any more")
	}
	if _, ok := h.(node.PodUIDLifecycleHandler); ok {
		t.Error("it goes by UIDs, which the provider does not")
	}
	if p.Lied("ns", "p") {
		t.Error("it has lied")
	}
}

func TestFaultsOfCalls(t *testing.T) {
	inner := newOne()
	p := fault.NewProvider(inner, 1)
	h := p.Handler()

	p.Break(fault.Plan{fault.Error: 1})
	if err := h.CreatePod(t.Context(), inner.pod); err == nil || inner.created != 0 {
		t.Errorf("error: %v, created %d times", err, inner.created)
	}
	classes := map[errdefs.Class]bool{}
	for range 200 {
		_, err := h.GetPod(t.Context(), "ns", "p")
		classes[errdefs.ClassOf(err)] = true
	}
	if len(classes) != 6 || classes[errdefs.NotFoundClass] {
		t.Errorf("errors of a GetPod are of the classes %v: want all but not found, which is no error", classes)
	}

	p.Break(fault.Plan{fault.LostAnswer: 1})
	if err := h.CreatePod(t.Context(), inner.pod); err == nil || inner.created != 1 {
		t.Errorf("lost answer: %v, created %d times", err, inner.created)
	}

	p.Break(fault.Plan{fault.Panic: 1})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = h.CreatePod(t.Context(), inner.pod)
	}()
	if p.Lied("ns", "p") {
		t.Error("a failure counts as a lie")
	}
}

func TestLies(t *testing.T) {
	for kind, check := range map[fault.Kind]func(inner *one, pod *corev1.Pod, err error) bool{
		fault.Overlook: func(inner *one, _ *corev1.Pod, err error) bool { return errdefs.IsNotFound(err) && inner.deleted == 0 },
		fault.Vanish:   func(inner *one, _ *corev1.Pod, err error) bool { return errdefs.IsNotFound(err) && inner.deleted == 1 },
		fault.WrongUID: func(_ *one, pod *corev1.Pod, err error) bool { return err == nil && pod.UID != "u" },
	} {
		inner := newOne()
		p := fault.NewProvider(inner, 1)
		p.Break(fault.Plan{kind: 1})
		pod, err := p.Handler().GetPod(t.Context(), "ns", "p")
		if !check(inner, pod, err) || !p.Lied("ns", "p") {
			t.Errorf("%s: %v, %v, lied: %t", kind, pod, err, p.Lied("ns", "p"))
		}
	}
}

func TestHangsEndWithTheirContextOrWithCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fault.NewProvider(newOne(), 1)
		p.Break(fault.Plan{fault.Hang: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := p.Handler().GetPod(ctx, "ns", "p"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with its context: %v", err)
		}
		time.AfterFunc(time.Minute, p.Calm)
		began := time.Now()
		if _, err := p.Handler().GetPod(t.Context(), "ns", "p"); err == nil || time.Since(began) != time.Minute {
			t.Errorf("with calm: %v after %v", err, time.Since(began))
		}
	})
}

func TestNotifications(t *testing.T) {
	inner := newOne()
	p := fault.NewProvider(inner, 1)
	var notified []string
	p.Handler().(node.PodNotifier).NotifyPods(t.Context(), func(pod *corev1.Pod) { notified = append(notified, pod.Status.Message) })
	for _, tc := range []struct {
		plan fault.Plan
		want int
		last string
	}{
		{nil, 1, "0"},
		{fault.Plan{fault.LostNotice: 1}, 0, ""},
		{fault.Plan{fault.RepeatedNotice: 1}, 2, "2"},
		{fault.Plan{fault.StaleNotice: 1}, 2, "2"},
	} {
		p.Break(tc.plan)
		notified = nil
		inner.notify(inner.pod)
		if len(notified) != tc.want || tc.want > 0 && notified[len(notified)-1] != tc.last {
			t.Errorf("%v: got %q, want %d, the last %q", tc.plan, notified, tc.want, tc.last)
		}
		inner.pod = inner.pod.DeepCopy()
		inner.pod.Status.Message = string(rune(inner.pod.Status.Message[0]) + 1)
	}
}
