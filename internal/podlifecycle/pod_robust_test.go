package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Invariant 10: any method may panic, once or always, the controller goes on.
func TestPanics(t *testing.T) {
	boom := func(context.Context, *corev1.Pod) error { panic("unimplemented") }
	for name, set := range map[string]func(*nodetest.Script){
		"CreatePod":    func(s *nodetest.Script) { s.OnCreate = boom },
		"UpdatePod":    func(s *nodetest.Script) { s.OnUpdate = boom },
		"DeletePod":    func(s *nodetest.Script) { s.OnDelete = boom },
		"GetPod":       func(s *nodetest.Script) { s.OnGet = func(string) error { panic("unimplemented") } },
		"GetPodStatus": func(s *nodetest.Script) { s.OnStatus = func(string) error { panic("unimplemented") } },
		"GetPods":      func(s *nodetest.Script) { s.OnList = func() error { panic("unimplemented") } },
	} {
		for _, handler := range []func(*nodetest.Backend) Provider{
			func(f *nodetest.Backend) Provider { return f.Polled() },
			func(f *nodetest.Backend) Provider { return f.Notifying() },
		} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.handler = handler(r.provider)
					r.provider.Script(set)
					r.start()
					r.api.AddPod(aPod("web"))
					pass(time.Minute)
					r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
					pass(time.Minute)
					r.provider.Script(func(s *nodetest.Script) { *s = nodetest.Script{} })
					pass(time.Minute)
					want(t, "phase", r.phase("web"), corev1.PodRunning)
					r.provider.Script(set)
					r.api.DeletePod("web")
					pass(time.Minute)
					r.provider.Script(func(s *nodetest.Script) { *s = nodetest.Script{} })
					pass(time.Minute)
					want(t, "pod", r.api.Pod("web"), nil)
					want(t, "held", len(r.provider.Holds("web")), 0)
				})
			})
		}
	}
}

// cannotNotify panics in NotifyPods.
type cannotNotify struct{ nodetest.Polled }

func (cannotNotify) NotifyPods(context.Context, func(*corev1.Pod)) { panic("unimplemented") }

// Invariant 10: a provider that cannot notify after all is polled.
func TestPanicInNotifyPods(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = cannotNotify{r.provider.Polled()}
		r.startWith(aPod("web"))
		r.provider.SetPhase("web", corev1.PodFailed)
		pass(5 * time.Second)
		want(t, "phase", r.phase("web"), corev1.PodFailed)
	})
}

// Invariant 10: a provider call that hangs holds up its own pod only, as long as
// there are workers.
func TestHangingCall(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(ctx context.Context, p *corev1.Pod) error {
				if p.Name == "hangs" {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
		})
		r.api.AddPod(aPod("hangs"))
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		r.events.recorded()
		r.end()
		// Our own end is no failure of the pod.
		wantList(t, "events", r.events.recorded())
		want(t, "reason", r.api.Pod("hangs").Status.Reason, "")
	})
}

// Invariant 10: what waits is bounded by the number of pods.
func TestQueuesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		release := make(chan struct{})
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(ctx context.Context, p *corev1.Pod) error { <-release; return nil }
		})
		for i := range 10 {
			r.api.AddPod(aPod(fmt.Sprint("web-", i)))
		}
		for i := range 50 {
			for j := range 10 {
				r.api.ChangePod(fmt.Sprint("web-", j), func(p *corev1.Pod) {
					metav1.SetMetaDataAnnotation(&p.ObjectMeta, "n", fmt.Sprint(i))
				})
			}
			synctest.Wait()
		}
		want(t, "queue", r.pc.Syncs().Len(), 10)
		close(release)
		synctest.Wait()
		want(t, "queue", r.pc.Syncs().Len(), 0)
	})
}

// Providers change the pods that they are given, also later.
func TestProviderChangesItsPods(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var kept []*corev1.Pod
		spoil := func(p *corev1.Pod) {
			p.Labels["app"] = "spoilt"
			p.Spec.Containers[0].Image = "spoilt"
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses = nil
		}
		take := func(_ context.Context, p *corev1.Pod) error {
			if p.Labels["app"] != "web" {
				t.Errorf("given a spoilt pod: %v", p.Labels)
			}
			kept = append(kept, p)
			return nil
		}
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate, s.OnUpdate, s.OnDelete = take, take, take
			s.Lingers = true
		})
		r.startWith(aPod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }))
		spoil(kept[0])
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		synctest.Wait()
		spoil(kept[1])
		cached, err := r.pc.cfg.Pods.Get("default", "web")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "label in the cache", cached.Labels["app"], "web")
		notified := r.provider.Hold(r.api.Pod("web"), corev1.PodRunning).DeepCopy()
		notified.Status.Message = "fine"
		r.provider.Notify(notified)
		notified.Status.Message = "spoilt"
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		want(t, "message", r.api.Pod("web").Status.Message, "fine")
		r.api.DeletePod("web")
		synctest.Wait()
		spoil(kept[2])
		r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, "a", "b") })
		pass(time.Minute)
		want(t, "calls", len(kept), 4) // the kill is the fourth
	})
}

// GetPod says "there is none" in many ways.
func TestWaysToSayNone(t *testing.T) {
	for name, answer := range map[string]func() (*corev1.Pod, error){
		"nothing":                 func() (*corev1.Pod, error) { return nil, nil },
		"not found":               func() (*corev1.Pod, error) { return nil, errdefs.NotFound("none") },
		"a plain error":           func() (*corev1.Pod, error) { return nil, errors.New("none") },
		"an empty pod":            func() (*corev1.Pod, error) { return &corev1.Pod{}, nil },
		"an empty pod, not found": func() (*corev1.Pod, error) { return &corev1.Pod{}, errdefs.NotFound("none") },
		"an empty pod, plain":     func() (*corev1.Pod, error) { return &corev1.Pod{}, errors.New("none") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = answering{r.provider.Polled(), answer}
				r.startWith(aPod("web"))
				want(t, "creates", len(r.provider.TakeCalls("create")), 1)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
			})
		})
	}
}

// answering has its own words for a pod that is not there.
type answering struct {
	nodetest.Polled
	none func() (*corev1.Pod, error)
}

func (a answering) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	if len(a.Backend.Holds(name)) == 0 {
		return a.none()
	}
	return a.Polled.GetPod(ctx, namespace, name)
}

// A controller that is stopped before it is ready says so, and leaves nothing
// behind; it cannot be run twice.
func TestEndBeforeReady(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.api.Fail("list pods", errors.New("away"))
		r.launch()
		pass(time.Second)
		err := r.stop()
		r.stop = nil
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want the context's error", err)
		}
		<-r.pc.Done()
		want(t, "Err", r.pc.Err(), err)
		if err := r.pc.Run(t.Context(), 1); err == nil {
			t.Error("it ran twice")
		}
	})
}
