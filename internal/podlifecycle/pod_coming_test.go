package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// pulling has the provider fail for a pod whose image is pulled, and leave it out of its list, until it is set to false.
func (r *rig) pulling(name string) *atomic.Bool {
	var pulls atomic.Bool
	pulls.Store(true)
	r.provider.Script(func(s *nodetest.Script) {
		s.OnGet = func(asked string) error {
			if asked == name && pulls.Load() {
				return errors.New("the group has no address yet")
			}
			return nil
		}
		s.List = func() []*corev1.Pod {
			return slices.DeleteFunc(r.provider.Pods(), func(p *corev1.Pod) bool { return p.Name == name && pulls.Load() })
		}
	})
	return &pulls
}

// fiveTries gives up after five.
func fiveTries(_ context.Context, _ string, timesTried int, _ time.Time, err error) (*time.Duration, error) {
	if timesTried > 5 {
		return nil, err
	}
	return nil, nil
}

// Some services have a unit before its containers run, and their providers say of it that it cannot be read, and leave it
// out of the list: such a pod, whose image is pulled for minutes, is not lost, and is seen as soon as it is shown.
func TestPodThatIsLongInBeingShown(t *testing.T) {
	for name, decide := range map[string]func(context.Context, string, int, time.Time, error) (*time.Duration, error){
		"tried again for ever":      retryForEver,
		"given up after five tries": fiveTries,
	} {
		for phase, shown := range map[corev1.PodPhase]func(*rig){
			corev1.PodRunning:   func(*rig) {},
			corev1.PodSucceeded: func(r *rig) { r.provider.SetPhase("web", corev1.PodSucceeded) },
		} {
			t.Run(fmt.Sprintf("%s, %s", name, phase), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.handler = r.provider.Polled()
					r.start(func(cfg *Config) { cfg.Syncs.Decide = decide })
					r.addPods(1) // so that the list is one
					pulls := r.pulling("web")
					r.api.AddPod(aPod("web"))
					pass(20 * time.Minute)
					want(t, "phase while the image is pulled", r.phase("web"), corev1.PodPending)
					shown(r)
					pulls.Store(false)
					pass(10 * time.Second)
					want(t, "phase", r.phase("web"), phase)
					pass(time.Hour)
					want(t, "phase later", r.phase("web"), phase)
					wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+string(r.api.Pod("web").UID))
				})
			})
		}
	}
}

// Invariants 3 and 4: a pod that is deleted before it was shown is deleted in the provider.
func TestPodThatIsDeletedBeforeItIsShown(t *testing.T) {
	for name, grace := range map[string][]int64{"gracefully": nil, "by force": {0}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.start()
				r.addPods(1)
				r.pulling("web")
				uid := string(r.api.AddPod(aPod("web")).UID)
				pass(10 * time.Minute)
				r.api.DeletePod("web", grace...)
				pass(10 * time.Second)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+uid, "delete web "+uid+" grace 30")
				want(t, "pod", r.api.Pod("web"), nil)
				next := string(r.api.AddPod(aPod("web")).UID)
				pass(10 * time.Second)
				wantList(t, "calls for the next one", r.provider.TakeCalls("create", "delete"), "create web "+next)
			})
		})
	}
}

// Invariant 3: so is one that lists of a provider that notifies lack.
func TestPodThatIsDeletedBeforeItIsNotified(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = quiet{r.provider.Notifying()}
		r.start()
		r.provider.Hold(aPod("other", func(p *corev1.Pod) { p.Spec.NodeName = "another" }), corev1.PodRunning)
		r.pulling("web")
		uid := string(r.api.AddPod(aPod("web")).UID)
		pass(10 * time.Minute)
		want(t, "phase while the image is pulled", r.phase("web"), corev1.PodPending)
		r.api.DeletePod("web")
		pass(10 * time.Second)
		wantList(t, "calls", r.provider.TakeCalls("delete web"), "delete web "+uid+" grace 30")
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// A provider that notifies may show such a pod in its list alone.
func TestPodThatIsListedBeforeItIsNotified(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = quiet{r.provider.Notifying()}
		r.start(func(cfg *Config) { cfg.Syncs.Decide = fiveTries })
		pulls := r.pulling("web")
		r.provider.Hold(aPod("other", func(p *corev1.Pod) { p.Spec.NodeName = "another" }), corev1.PodRunning)
		r.api.AddPod(aPod("web"))
		pass(20 * time.Minute)
		want(t, "phase while the image is pulled", r.phase("web"), corev1.PodPending)
		pulls.Store(false)
		pass(6 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// quiet is a provider that takes the function to notify with, and has no word on the pods that it creates.
type quiet struct{ nodetest.Notifying }

func (p quiet) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	p.Backend.Hold(pod, corev1.PodRunning)
	return nil
}

// The deadline ends also a pod that was not shown yet.
func TestDeadlineOfAPodThatIsNotShown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.addPods(1)
		r.pulling("web")
		uid := string(r.api.AddPod(aPod("web", within(60))).UID)
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodPending)
		pass(15 * time.Second)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+uid, "delete web "+uid+" grace 30")
		r.wantExceeded("web")
	})
}

// A created pod that never comes to be is lost in the end.
func TestPodThatIsNeverShown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start(func(cfg *Config) { cfg.Syncs.Decide = fiveTries })
		r.addPods(1)
		r.pulling("web")
		r.api.AddPod(aPod("web"))
		pass(30 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodPending)
		pass(3 * time.Minute)
		want(t, "phase later", r.phase("web"), corev1.PodFailed)
		want(t, "reason", r.api.Pod("web").Status.Reason, StatusReasonNotFound)
		want(t, "the other", r.phase("web-0"), corev1.PodRunning)
	})
}

// Nor is a pod that was given up, and that a list shows once more, one that is coming.
func TestGivenUpPodIsNotComing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.addPods(2)
		pod := r.provider.Forget("web-0")
		pass(3 * time.Minute)
		want(t, "phase", r.phase("web-0"), corev1.PodFailed)
		r.provider.Hold(pod, corev1.PodRunning)
		pulls := r.pulling("web-0")
		once := false
		r.provider.Script(func(s *nodetest.Script) {
			s.List = func() []*corev1.Pod {
				pulls.Store(once)
				defer pulls.Store(true)
				once = true
				return slices.DeleteFunc(r.provider.Pods(), func(p *corev1.Pod) bool { return p.Name == "web-0" && pulls.Load() })
			}
		})
		pass(3 * time.Minute)
		want(t, "questions that are tried again", r.pc.Syncs().Len(), 0)
	})
}
