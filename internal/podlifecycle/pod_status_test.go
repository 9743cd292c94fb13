package podlifecycle

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Invariant 6: a terminal phase is final, in the API and towards the provider.
func TestTerminalIsFinal(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("job"))
		r.provider.TakeCalls()
		r.provider.SetPhase("job", corev1.PodSucceeded)
		synctest.Wait()
		want(t, "phase", r.phase("job"), corev1.PodSucceeded)
		for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed, corev1.PodPending} {
			r.provider.SetPhase("job", phase)
			pass(time.Minute)
			want(t, "phase", r.phase("job"), corev1.PodSucceeded)
		}
		r.provider.Forget("job")
		r.api.ChangePod("job", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b") })
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create", "update", "delete"))
	})
}

// Invariant 6: a pod that others made terminal (an eviction, say) stays so, and
// is stopped in the provider.
func TestMadeTerminalByOthers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.TakeCalls()
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })
		pass(time.Minute)
		want(t, "reason", r.api.Pod("web").Status.Reason, "Evicted")
		calls := r.provider.TakeCalls("create", "delete")
		if len(calls) != 1 || !strings.HasSuffix(calls[0], "grace 30") {
			t.Errorf("calls: %q, want one graceful delete", calls)
		}
	})
}

// Invariant 3: if that pod does not stop within its grace period it is killed.
func TestMadeTerminalByOthersDoesNotStop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.start()
		uid := string(r.api.AddPod(aPod("web")).UID)
		synctest.Wait()
		r.provider.TakeCalls()
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })
		pass(29 * time.Second)
		wantList(t, "calls within the grace period", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 30")
		pass(2 * time.Second)
		wantList(t, "calls after it", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 0")
	})
}

// Invariant 6: an update that fails leaves the phase alone.
func TestFailedUpdate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		before := r.api.Pod("web").Status
		r.api.Written()
		r.events.recorded()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnUpdate = func(context.Context, *corev1.Pod) error { return errors.New("cannot") }
		})
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		pass(time.Hour)
		want(t, "status", r.api.Pod("web").Status, before)
		wantList(t, "writes", r.api.Written())
		wantList(t, "events", r.events.recorded(), "Warning ProviderUpdateFailed: cannot")
		r.provider.Script(func(s *nodetest.Script) { s.OnUpdate = nil })
		pass(time.Minute)
		wantList(t, "events", r.events.recorded(), "Normal ProviderUpdateSuccess: Update pod in provider successfully")
		want(t, "observed generation", r.api.Pod("web").Status.ObservedGeneration, 2)
		r.provider.TakeCalls()
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("update"))
	})
}

// Invariant 6: Running does not go back to Pending, but the rest of a report
// counts.
func TestPhaseDoesNotMoveBackwards(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status = nodetest.StatusOf(p, corev1.PodPending); p.Status.PodIP = "10.0.0.9" })
		synctest.Wait()
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		want(t, "pod IP", r.api.Pod("web").Status.PodIP, "10.0.0.9")
	})
}

// Invariant 7: the status is written only when it has changed.
func TestUnchangedStatusIsNotWritten(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
		for range 20 {
			pass(10 * time.Second)
			r.provider.ChangePod("web", func(*corev1.Pod) {})
		}
		wantList(t, "writes", r.api.Written())
		r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" })
		pass(10 * time.Second)
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
	})
}

// What the provider reported, and the API has, is in memory once.
func TestStatusOfAPodAtRestIsThatOfTheCache(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		wantShared := func() {
			t.Helper()
			pod := r.pc.current(types.NamespacedName{Namespace: "default", Name: "web"})
			record := r.record("web")
			for name, status := range map[string]*corev1.PodStatus{"provider": record.providerStatus, "desired": record.desiredStatus, "sent": record.sent} {
				if &status.ContainerStatuses[0] != &pod.Status.ContainerStatuses[0] {
					t.Errorf("the %s status has containers of its own", name)
				}
			}
		}
		r.startWith(aPod("web"))
		wantShared()
		r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ })
		pass(10 * time.Second)
		wantShared()
		r.api.Written()
		r.provider.ChangePod("web", func(*corev1.Pod) {})
		pass(10 * time.Second)
		wantList(t, "writes", r.api.Written())
		wantShared()
	})
}

// Invariant 7: the patch is guarded by the UID, and carries no spec.
func TestStatusPatchesOnTheWire(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		uid := r.api.AddPod(aPod("web", func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "s3cret"}}
		})).UID
		synctest.Wait()
		want(t, "patches", len(r.api.Patches), 1)
		for _, patch := range r.api.Patches {
			if !strings.Contains(patch, `"metadata":{"uid":"`+string(uid)+`"}`) || strings.Contains(patch, "s3cret") || strings.Contains(patch, `"spec"`) {
				t.Errorf("patch: %s", patch)
			}
		}
	})
}

// Invariant 7: a word on an old pod does not get onto the new one of its name.
func TestStatusOfAnotherUID(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.api.Gap(func() {
			r.api.DeletePod("web", 0)
			r.api.AddPod(aPod("web"))
			r.provider.SetPhase("web", corev1.PodFailed)
			synctest.Wait() // the cache still has the old one, so this is sent
		})
		want(t, "phase", r.phase("web"), corev1.PodPending)
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Invariant 7: the newest word wins; what was overtaken is not written.
func TestStatusIsCoalesced(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.api.Written()
		r.api.Fail("patch pods/status", apierrors.NewServiceUnavailable("away"))
		for i := range 200 {
			r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.Message = strings.Repeat("x", i) })
		}
		synctest.Wait()
		r.api.Written()
		want(t, "waiting statuses", r.pc.Statuses().UnprocessedLen(), 1)
		r.api.Fail("patch pods/status", nil)
		pass(time.Minute)
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
		want(t, "message", r.api.Pod("web").Status.Message, strings.Repeat("x", 199))
	})
}

// Invariant 7: what is written is compared with what was written before, not with a
// cache that is behind.
func TestStatusWhileTheCacheIsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.api.Gap(func() {
			for _, message := range []string{"a", "", "b", ""} {
				r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.Message = message })
				synctest.Wait()
				want(t, "message", r.api.Pod("web").Status.Message, message)
			}
		})
		r.api.Written()
		pass(time.Minute)
		wantList(t, "writes when it has caught up", r.api.Written())
	})
}

// API servers before 1.33 count no generations of pods.
func TestAPIWithoutGenerations(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.api.NoGenerations = true
		r.start()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
		r.provider.TakeCalls()
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		synctest.Wait()
		want(t, "updates", len(r.provider.TakeCalls()), 1)
		r.api.DeletePod("web", 600)
		synctest.Wait()
		want(t, "deletes", len(r.provider.TakeCalls("delete")), 1)
		r.api.DeletePod("web", 1)
		pass(3 * time.Second)
		want(t, "deletes after a shorter grace", len(r.provider.TakeCalls("delete")), 1)
		wantList(t, "writes", r.api.Written())
	})
}

// API servers before 1.34 have the generations of pods, but drop the observed ones.
func TestAPIWithoutObservedGenerations(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.api.NoObservedGenerations, r.resync = true, time.Minute
		r.startWith(aPod("web"))
		pass(10 * time.Minute)
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		pass(10 * time.Minute)
		wantList(t, "writes of another generation", r.api.Written(), "patch pods/status web")
		r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.Message = "news" })
		pass(10 * time.Minute)
		wantList(t, "writes of another status", r.api.Written(), "patch pods/status web")
		r.api.NoObservedGenerations = false // the API server was upgraded
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:3" })
		pass(10 * time.Minute)
		wantList(t, "writes to a newer server", r.api.Written(), "patch pods/status web")
		want(t, "observed generation", r.api.Pod("web").Status.ObservedGeneration, 3)
	})
}

// Invariant 7: notifications from everywhere at once lose nothing.
func TestManyNotifications(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.Message = strings.Repeat("x", i) })
			})
		}
		group.Wait()
		r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.Message = "last" })
		pass(2 * time.Second)
		want(t, "message", r.api.Pod("web").Status.Message, "last")
	})
}

// Invariant 7: conditions of others stay, and what others overwrite is repaired,
// but not as fast as they can write.
func TestForeignWrites(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.api.Written()
		r.api.ChangePod("web", func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
		})
		pass(time.Minute)
		wantList(t, "writes", r.api.Written())
		r.provider.ChangePod("web", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		})
		pass(time.Minute)
		want(t, "conditions", len(r.api.Pod("web").Status.Conditions), 2)

		r.api.Written()
		for range 100 {
			r.api.ChangePod("web", func(p *corev1.Pod) { p.Status.Message = "drift" + time.Now().String() })
			pass(100 * time.Millisecond)
		}
		pass(time.Minute)
		want(t, "message", r.api.Pod("web").Status.Message, "")
		if repairs := len(r.api.Written()); repairs < 2 || repairs > 12 {
			t.Errorf("%d repairs in 10 seconds of drift, want about one a second", repairs)
		}
	})
}

// The API's data are restored from a backup: what was written since is written again.
func TestStatusAfterTheAPIWasRestored(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("job"))
		r.provider.SetPhase("job", corev1.PodRunning)
		pass(time.Second)
		backup := r.api.Pod("job")
		r.provider.SetPhase("job", corev1.PodSucceeded)
		pass(time.Minute)
		want(t, "phase", r.phase("job"), corev1.PodSucceeded)
		r.api.RestorePod(backup)
		pass(time.Minute)
		want(t, "phase after the restore", r.phase("job"), corev1.PodSucceeded)
	})
}

// Invariants 5 and 9: a status that the API does not accept is an event, once, and
// tried again.
func TestRejectedStatus(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.events.recorded()
		r.api.Fail("patch pods/status", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil))
		r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.PodIP = "nonsense" })
		pass(time.Hour)
		events := r.events.recorded()
		if len(events) != 1 || !strings.HasPrefix(events[0], "Warning StatusRejected: ") {
			t.Errorf("events: %q, want one", events)
		}
		r.api.Fail("patch pods/status", nil)
		pass(time.Minute)
		want(t, "pod IP", r.api.Pod("web").Status.PodIP, "nonsense")
	})
}

// Invariant 9, and what a failed create looks like: the provider's words in the
// status, gone when it works.
func TestFailedCreateInTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("no quota") }
		})
		r.start()
		r.api.AddPod(aPod("web"))
		pass(10 * time.Minute)
		status := r.api.Pod("web").Status
		want(t, "status", []string{string(status.Phase), status.Reason, status.Message}, []string{"Pending", "ProviderFailed", "no quota"})
		wantList(t, "events", r.events.recorded(), "Warning ProviderCreateFailed: no quota")
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
		r.provider.Script(func(s *nodetest.Script) { s.OnCreate = nil })
		pass(time.Minute)
		status = r.api.Pod("web").Status
		want(t, "status", []string{string(status.Phase), status.Reason, status.Message}, []string{"Running", "", ""})
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
	})
}

// silent is a provider that creates pods, once it does, without notifying.
type silent struct {
	nodetest.Notifying
	works *atomic.Bool
}

func (s silent) CreatePod(_ context.Context, pod *corev1.Pod) error {
	if !s.works.Load() {
		return errors.New("no quota")
	}
	s.Backend.Hold(pod, "")
	return nil
}

// Once the pod is created, its status does not say any more why it was not, also before the provider
// notifies: people would believe it, and another process would create the pod again.
func TestPodThatIsCreatedAfterAll(t *testing.T) {
	for name, missing := range map[string]bool{"the provider failed": false, "an object was missing": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var works atomic.Bool
				works.Store(missing)
				r.handler = silent{r.provider.Notifying(), &works}
				r.start()
				r.api.AddPod(aPod("web", needs(!missing)))
				pass(time.Second)
				status := r.api.Pod("web").Status
				want(t, "is not created", notCreated(&status), true)
				works.Store(true)
				mustCreate(t, r, &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "red"}})
				mustCreate(t, r, &corev1.Secret{ObjectMeta: object("tokens"), Data: map[string][]byte{"main": []byte("x")}})
				pass(10 * time.Second)
				status = r.api.Pod("web").Status
				want(t, "status", []string{string(status.Phase), status.Reason, status.Message}, []string{"Pending", "", ""})
				want(t, "containers", len(status.ContainerStatuses), 0)
			})
		})
	}
}

// So it is with one that an earlier process has had created, and that the provider has lost.
func TestPodThatIsCreatedAgainAfterAll(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var works atomic.Bool
		r.handler = silent{r.provider.Notifying(), &works}
		r.start()
		start := metav1.Now()
		r.api.AddPod(aPod("web", func(pod *corev1.Pod) {
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
			}}
		}))
		pass(2 * time.Minute)
		status := r.api.Pod("web").Status
		want(t, "status", []string{string(status.Phase), status.Reason, status.Message}, []string{"Pending", "ProviderFailed", "no quota"})
		want(t, "containers", len(status.ContainerStatuses), 1)
		works.Store(true)
		pass(10 * time.Minute)
		status = r.api.Pod("web").Status
		want(t, "status", []string{string(status.Phase), status.Reason, status.Message}, []string{"Pending", "", ""})
		want(t, "containers", len(status.ContainerStatuses), 0)
	})
}

// waiting is a provider whose pods wait for their configuration, which it notifies of as it creates them.
type waiting struct{ nodetest.Notifying }

func (w waiting) CreatePod(_ context.Context, pod *corev1.Pod) error {
	pod = w.Backend.Hold(pod, corev1.PodPending)
	pod.Status.ContainerStatuses[0].State.Waiting.Reason = "CreateContainerConfigError"
	w.Backend.Notify(pod)
	return nil
}

// What a provider has reported of a pod that it was given stays, although it is what the controller says
// of one that it was not given.
func TestPodThatWaitsInTheProvider(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = waiting{r.provider.Notifying()}
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		containers := r.api.Pod("web").Status.ContainerStatuses
		if len(containers) != 1 || containers[0].State.Waiting == nil || containers[0].State.Waiting.Reason != "CreateContainerConfigError" {
			t.Errorf("the containers are %+v, want what the provider has reported", containers)
		}
	})
}

// A permanent error is the end of a pod, with any restartPolicy; it is not tried
// again, and what the provider may hold of it is deleted.
func TestPermanentError(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		for _, halfway := range []bool{false, true} {
			bubble(t, func(t *testing.T, r *rig) {
				r.provider.Script(func(s *nodetest.Script) {
					s.OnCreate = func(_ context.Context, p *corev1.Pod) error {
						if halfway {
							r.provider.Hold(p, corev1.PodRunning)
						}
						return errdefs.AsPermanent(errors.New("no such region"))
					}
				})
				r.start()
				r.api.AddPod(aPod("job", func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }))
				pass(time.Hour)
				want(t, "creates", len(r.provider.TakeCalls("create")), 1)
				status := r.api.Pod("job").Status
				want(t, "status", []string{string(status.Phase), status.Reason, status.Message}, []string{"Failed", "ProviderFailed", "no such region"})
				want(t, "held", len(r.provider.Holds("job")), 0)
				r.api.DeletePod("job")
				pass(time.Minute)
				want(t, "pod", r.api.Pod("job"), nil)
			})
		}
	}
}

// The host's addresses are the node's where the provider reports none.
func TestHostIPs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(func(cfg *Config) {
			cfg.HostIPs = func() []string { return []string{"192.0.2.1", "2001:db8::1"} }
		})
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		want(t, "host IPs", r.api.Pod("web").Status.HostIPs, []corev1.HostIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}})
	})
}

// A provider that reports the pod running before CreatePod has returned costs
// one patch: it says which generation it is about.
func TestStatusFromWithinCreate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(_ context.Context, pod *corev1.Pod) error {
				r.provider.Notify(r.provider.Hold(pod, corev1.PodRunning))
				time.Sleep(time.Second)
				return nil
			}
		})
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		want(t, "observed generation", r.api.Pod("web").Status.ObservedGeneration, 1)
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
	})
}

// deletionObserved is longer than the generation of a deletion waits to be written with
// the pod's last status.
const deletionObserved = 6 * time.Second

// A deletion costs one patch, of the last status, where the pod stops in time.
func TestADeletionIsOnePatch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.provider.SetPhase("web", corev1.PodRunning)
		synctest.Wait()
		r.api.Written()
		r.api.DeletePod("web")
		pass(4 * time.Second)
		r.provider.SetPhase("web", corev1.PodSucceeded)
		pass(10 * time.Second)
		wantList(t, "writes", r.api.Written(), "patch pods/status web", "delete pods web")
	})
}

// A deletion is a generation, which is observed once the provider has been asked to
// end the pod, or need not be asked.
func TestObservedGenerationOfADeletion(t *testing.T) {
	for name, phase := range map[string]corev1.PodPhase{"it stops slowly": corev1.PodRunning, "it has ended": corev1.PodSucceeded} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
				r.api.AddPod(aPod("job", func(p *corev1.Pod) { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }))
				synctest.Wait()
				r.provider.SetPhase("job", phase)
				synctest.Wait()
				r.api.DeletePod("job")
				pass(deletionObserved)
				pod := r.api.Pod("job")
				want(t, "generation", pod.Generation, 2)
				want(t, "observed generation", pod.Status.ObservedGeneration, 2)
				r.api.Written()
				pass(20 * time.Second)
				wantList(t, "writes", r.api.Written())
			})
		})
	}
}

// Invariant 7: a status that was reported while a list of the API lacked the pod is
// written when the API shows it again.
func TestStatusReportedWhileAListLacksThePod(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		r.api.Hide("web", true)
		r.api.Gap(func() {})
		pass(time.Second)
		r.provider.SetPhase("web", corev1.PodSucceeded)
		pass(time.Second)
		r.api.Hide("web", false)
		r.api.Gap(func() {})
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodSucceeded)
	})
}
