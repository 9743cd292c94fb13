package podlifecycle

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

func within(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(seconds) }
}

func (r *rig) wantExceeded(name string) {
	r.t.Helper()
	status := r.api.Pod(name).Status
	want(r.t, "status", []string{string(status.Phase), status.Reason, status.Message},
		[]string{"Failed", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"})
}

// A pod that outlives its deadline is stopped gracefully, and Failed once it has
// stopped, by any kind of provider, whichever way that reports it.
func TestDeadline(t *testing.T) {
	for name, polls := range map[string]bool{"notifies": false, "is polled": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				if polls {
					r.handler = r.provider.Polled()
				}
				r.start()
				pod := r.api.AddPod(aPod("web", within(60)))
				pass(time.Minute)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+string(pod.UID))
				r.events.recorded()
				pass(15 * time.Second)
				r.wantExceeded("web")
				wantList(t, "calls", r.provider.TakeCalls("delete"), "delete web "+string(pod.UID)+" grace 30")
				if events := r.events.recorded(); len(events) == 0 || events[0] != "Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline" {
					t.Errorf("events: %q", events)
				}
				for _, c := range r.api.Pod("web").Status.ContainerStatuses {
					if c.State.Terminated == nil || c.Ready {
						t.Errorf("container: %+v", c)
					}
				}
				pass(time.Hour)
				r.wantExceeded("web")
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
			})
		})
	}
}

// The deadline counts from the start of the pod, and not of the agent.
func TestDeadlineAcrossRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("short", within(60)))
		r.api.AddPod(aPod("long", within(3600)))
		pass(30 * time.Second)
		r.end()
		r.start()
		pass(20 * time.Second)
		want(t, "phase before its deadline", r.phase("short"), corev1.PodRunning)
		pass(20 * time.Second)
		r.wantExceeded("short")
		r.end()
		pass(time.Hour)
		want(t, "phase while no agent runs", r.phase("long"), corev1.PodRunning)
		r.start()
		pass(10 * time.Second)
		r.wantExceeded("long")
	})
}

// A pod that waits for its configuration, and one that cannot be created, end as well.
func TestDeadlineOfPodsThatWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web", within(60), needs(false)))
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodPending)
		pass(10 * time.Second)
		r.wantExceeded("web")
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
	})
}

// The deadline may be set, or come nearer, while the pod runs.
func TestDeadlineThatIsSetLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Hour)
		r.api.ChangePod("web", within(4000))
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		r.api.ChangePod("web", within(3700))
		pass(time.Minute)
		r.wantExceeded("web")
	})
}

// A provider that enforces the deadline itself has the first word, and what it says of
// the containers stays.
func TestDeadlineOfTheProvider(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web", within(60)))
		pass(time.Minute)
		r.provider.ChangePod("web", func(p *corev1.Pod) {
			p.Status = *statusOfEnd(p)
			p.Status.Reason, p.Status.Message = "DeadlineExceeded", "its own words"
		})
		pass(time.Minute)
		want(t, "message", r.api.Pod("web").Status.Message, "its own words")
		wantList(t, "calls", r.provider.TakeCalls("delete"))
	})
}

func statusOfEnd(p *corev1.Pod) *corev1.PodStatus {
	status := nodetest.StatusOf(p, corev1.PodFailed)
	return &status
}

// A pod that ends as it is stopped for its deadline has not succeeded, nor is it lost.
func TestDeadlineOfAPodThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.api.AddPod(aPod("web", within(60)))
		pass(time.Minute + time.Second)
		r.provider.Forget("web")
		pass(time.Minute)
		r.wantExceeded("web")
		for _, event := range r.events.recorded() {
			if strings.Contains(event, "ProviderLost") {
				t.Errorf("event: %s", event)
			}
		}
	})
}

// A pod that was created before a restart, and that the provider does not know when its
// deadline is over, may only have been overlooked: it is ended all the same.
func TestDeadlineOfAPodOfBeforeARestart(t *testing.T) {
	for name, tc := range map[string]struct {
		phase corev1.PodPhase
		down  time.Duration // for how long no agent runs
	}{
		"pending":                              {corev1.PodPending, 50 * time.Second},
		"pending, its deadline is over before": {corev1.PodPending, time.Hour},
		"running":                              {corev1.PodRunning, 50 * time.Second},
		"running, its deadline is over before": {corev1.PodRunning, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, r *rig) {
				pod := r.api.AddPod(aPod("web", within(60), pending, func(p *corev1.Pod) { p.Status.Phase = tc.phase }))
				pass(tc.down)
				r.start()
				pass(20 * time.Second)
				r.wantExceeded("web")
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete web "+string(pod.UID)+" grace 30")
				pass(time.Hour)
				wantList(t, "calls later", r.provider.TakeCalls("create", "delete"))
			})
		})
	}
}

// A create that hangs ends with the pod's deadline, however it takes its cancellation,
// and the provider is asked to end the pod, since it may have come to be.
func TestDeadlineOfACreateThatHangs(t *testing.T) {
	for name, tc := range map[string]struct {
		create func(context.Context, *corev1.Pod) error
		after  time.Duration // the deadline
	}{
		"until it is cancelled": {hang, 3 * time.Second},
		"and succeeds then":     {func(ctx context.Context, _ *corev1.Pod) error { <-ctx.Done(); return nil }, 3 * time.Second},
		"and succeeds much later": {func(ctx context.Context, _ *corev1.Pod) error {
			<-ctx.Done()
			time.Sleep(10 * time.Minute)
			return nil
		}, 10*time.Minute + 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.provider.Script(func(s *nodetest.Script) { s.OnCreate = tc.create })
				pod := r.api.AddPod(aPod("web", within(60)))
				pass(59 * time.Second)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+string(pod.UID))
				want(t, "phase", r.phase("web"), corev1.PodPending)
				pass(time.Second + tc.after)
				r.wantExceeded("web")
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete web "+string(pod.UID)+" grace 30")
				want(t, "pods held", len(r.provider.Holds("web")), 0)
				pass(time.Hour)
				wantList(t, "calls later", r.provider.TakeCalls("create", "delete"))
			})
		})
	}
}

// The deadline of a pod whose create hangs counts across restarts of the agent.
func TestDeadlineOfACreateThatHangsAcrossRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.provider.Script(func(s *nodetest.Script) { s.OnCreate = hang })
		r.start()
		r.api.AddPod(aPod("web", within(60)))
		for range 2 {
			pass(25 * time.Second)
			r.end()
			r.start()
		}
		pass(15 * time.Second)
		r.wantExceeded("web")
	})
}

// slowReads are of an API server that does not answer.
type slowReads struct{ ObjectSource }

func (slowReads) ConfigMap(ctx context.Context, _, _ string) (*corev1.ConfigMap, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A pod that was prepared when the agent ended was not created: it is by the next one, at once.
func TestDeadlineOfAPodThatWasPrepared(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		objects, use := withObjects(r)
		for _, o := range []runtime.Object{
			&corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "blue"}},
			&corev1.Secret{ObjectMeta: object("tokens"), Data: map[string][]byte{"main": []byte("s3cret")}},
		} {
			mustCreate(t, r, o)
		}
		r.start(use, func(cfg *Config) { cfg.Objects = slowReads{objects} })
		pod := r.api.AddPod(aPod("web", within(600), needs(false)))
		pass(5 * time.Second)
		r.end()
		wantList(t, "calls", r.provider.TakeCalls("create"))
		r.start(use)
		pass(time.Second)
		wantList(t, "calls", r.provider.TakeCalls("create"), "create web "+string(pod.UID))
	})
}

// An update that hangs does not keep its pod from being stopped when its deadline is over.
func TestDeadlineOfAnUpdateThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web", within(60)))
		pass(time.Second)
		r.provider.Script(func(s *nodetest.Script) { s.OnUpdate = hang })
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} })
		pass(65 * time.Second)
		r.wantExceeded("web")
	})
}
