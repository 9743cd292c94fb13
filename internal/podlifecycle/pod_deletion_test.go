package podlifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Invariant 4: a pod leaves the API as soon as the provider reports it stopped,
// not before, in any state of its containers; then at once.
func TestPodLeavesWhenItHasStopped(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		r.api.DeletePod("web")
		pass(10 * time.Second)
		want(t, "deletes", len(r.provider.TakeCalls("delete")), 1)
		r.provider.ChangePod("web", func(p *corev1.Pod) { // restarts are still possible
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		})
		pass(10 * time.Second)
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API before it had stopped")
		}
		wantList(t, "calls", r.provider.TakeCalls("delete"))
		r.provider.SetPhase("web", corev1.PodSucceeded)
		synctest.Wait()
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Invariant 4: all containers terminated is stopped too, once the end was asked
// for: some providers never report a terminal phase. Before, it is not.
func TestTerminatedContainersAreTheEndOfADeletedPodOnly(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.provider.ChangePod("web", endContainers)
		pass(time.Hour)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		r.api.DeletePod("web")
		synctest.Wait()
		want(t, "deletes", len(r.provider.TakeCalls("delete")), 1)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// endContainers has the containers of a pod ended that runs.
func endContainers(p *corev1.Pod) {
	p.Status = nodetest.StatusOf(p, corev1.PodSucceeded)
	p.Status.Phase = corev1.PodRunning
}

// Invariant 4: what was seen before the end was asked for says nothing of it: the containers may run again by then.
func TestContainersThatRestartBeforeTheDeletion(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		pod := r.api.AddPod(aPod("web"))
		pass(time.Minute)
		r.provider.ChangePod("web", endContainers)
		pass(5 * time.Second)
		want(t, "container has ended", r.api.Pod("web").Status.ContainerStatuses[0].State.Terminated != nil, true)
		r.provider.Hold(pod, corev1.PodRunning) // which nobody is notified of, or has asked about
		r.api.DeletePod("web")
		pass(25 * time.Second)
		wantList(t, "deletes", r.provider.TakeCalls("delete"), "delete web "+string(pod.UID)+" grace 30")
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API before it had stopped")
		}
		r.provider.ChangePod("web", endContainers)
		pass(5 * time.Second)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Containers that have all ended may be started again, which is followed.
func TestTerminatedContainersThatRestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.startWith(aPod("web"))
		r.provider.ChangePod("web", endContainers)
		pass(10 * time.Second)
		r.provider.SetPhase("web", corev1.PodRunning)
		pass(10 * time.Second)
		want(t, "container runs", r.api.Pod("web").Status.ContainerStatuses[0].State.Running != nil, true)
	})
}

// Invariant 4: a provider that does not notify the end, or answers NotFound, is
// asked; its pods leave soon.
func TestPodLeavesWhenItIsNotKnown(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"polled":                 func(r *rig) { r.handler = r.provider.Polled() },
		"notifies, but not this": func(r *rig) { r.provider.Script(func(s *nodetest.Script) { s.Lingers = true }) },
		"delete says not found": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) {
				s.OnDelete = func(context.Context, *corev1.Pod) error { return errdefs.NotFound("what pod?") }
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				prepare(r)
				r.startWith(aPod("web"))
				r.api.DeletePod("web")
				r.provider.Forget("web")
				pass(5 * time.Second)
				want(t, "pod", r.api.Pod("web"), nil)
			})
		})
	}
}

// Invariant 4: when the grace period has run out the provider is asked to kill,
// and again, until the pod is gone.
func TestKillAtTheEndOfGrace(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		uid := string(r.api.AddPod(aPod("web")).UID)
		synctest.Wait()
		r.provider.TakeCalls()
		r.api.DeletePod("web", 12)
		pass(11 * time.Second)
		wantList(t, "calls in time", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 12")
		pass(3 * time.Second)
		wantList(t, "calls when it is late", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 0")
		pass(time.Minute)
		wantList(t, "calls a minute later", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 0")
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API though it runs")
		}
		r.provider.SetPhase("web", corev1.PodFailed)
		pass(5 * time.Second)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Invariant 4: a pod of which a kubelet ends containers only when its grace period is over is
// killed only when these have had their time.
func TestKillOfAPodThatEndsLate(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"a sidecar": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "proxy", Image: "envoy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		},
		"a preStop hook": func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 100}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
				r.startWith(aPod("web", change))
				uid := string(r.api.Pod("web").UID)
				r.api.DeletePod("web", 12)
				pass(16 * time.Second)
				wantList(t, "calls in time", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 12")
				pass(2 * time.Second)
				wantList(t, "calls when it is late", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 0")
			})
		})
	}
}

// Invariant 4: a provider that cannot be asked about a pod is asked to kill it in time all
// the same.
func TestKillOfAPodThatCannotBeAskedFor(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		away := errors.New("the backend is away")
		r.provider.Script(func(s *nodetest.Script) {
			s.Lingers = true
			s.OnGet = func(string) error { return away }
			s.OnStatus = s.OnGet
			s.OnList = func() error { return away }
		})
		uid := string(r.api.Pod("web").UID)
		r.api.DeletePod("web")
		pass(33 * time.Second)
		wantList(t, "calls", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 30", "delete web "+uid+" grace 0")
	})
}

// Invariant 4: a grace period that is shortened meanwhile counts.
func TestShortenedGrace(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.api.DeletePod("web", 600)
		pass(time.Second)
		r.api.DeletePod("web", 2)
		pass(4 * time.Second)
		calls := r.provider.TakeCalls("delete")
		if len(calls) != 2 || !strings.HasSuffix(calls[1], "grace 0") {
			t.Errorf("calls: %q, want a kill after the shorter grace", calls)
		}
	})
}

// Invariant 4: a pod that never was is removed at once; the provider hears
// nothing of its end.
func TestDeletedBeforeItWasCreated(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("no quota") }
		})
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.api.DeletePod("web")
		pass(time.Second)
		want(t, "pod", r.api.Pod("web"), nil)
		wantList(t, "deletes", r.provider.TakeCalls("delete"))
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create"))
	})
}

// Invariant 4: DeletePod is tried until it works, and the pod stays meanwhile.
func TestDeleteThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { return errdefs.AsUnavailable(errors.New("away")) }
		})
		r.events.recorded()
		r.api.DeletePod("web")
		pass(time.Hour)
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API though it runs")
		}
		wantList(t, "events", r.events.recorded(), "Warning ProviderDeleteFailed: away")
		r.provider.Script(func(s *nodetest.Script) { s.OnDelete = nil })
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Invariant 4: a pod that finalizers hold gets a terminal status before the API
// is asked to remove it, since a Job's controller goes by it; a deleted pod whose
// provider does not say how it ended has not succeeded.
func TestFinalStatusComesBeforeTheRemoval(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*rig)
		want corev1.PodPhase
	}{
		"not known any more": {func(r *rig) { r.provider.Forget("job") }, corev1.PodFailed},
		"succeeded":          {func(r *rig) { r.provider.SetPhase("job", corev1.PodSucceeded) }, corev1.PodSucceeded},
		"failed":             {func(r *rig) { r.provider.SetPhase("job", corev1.PodFailed) }, corev1.PodFailed},
		"killed": {func(r *rig) {
			r.provider.ChangePod("job", func(p *corev1.Pod) {
				p.Status = nodetest.StatusOf(p, corev1.PodFailed)
				p.Status.Phase = corev1.PodRunning
			})
		}, corev1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
				r.api.AddPod(aPod("job", func(p *corev1.Pod) { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }))
				synctest.Wait()
				r.api.DeletePod("job")
				synctest.Wait()
				r.api.Written()
				tc.end(r)
				pass(10 * time.Second)
				want(t, "phase", r.phase("job"), tc.want)
				writes := r.api.Written()
				if len(writes) < 2 || writes[0] != "patch pods/status job" || writes[len(writes)-1] != "delete pods job" || len(writes) > 3 {
					t.Errorf("writes: %q, want the status, then the delete", writes)
				}
				for _, c := range r.api.Pod("job").Status.ContainerStatuses {
					if c.State.Terminated == nil {
						t.Errorf("container %s: %+v, want it terminated", c.Name, c.State)
					}
				}
				r.provider.TakeCalls()
				pass(time.Hour)
				wantList(t, "writes later", r.api.Written())
				r.api.ChangePod("job", func(p *corev1.Pod) { p.Finalizers = nil })
				r.api.DeletePod("job", 0)
				pass(time.Minute)
				want(t, "records", r.pc.Pods(), 0)
			})
		})
	}
}

// Invariant 4: how a pod has ended is in the API before the pod leaves it, with its exit
// codes, by one patch; where the provider does not know, nothing is made up.
func TestLastStatusIsWrittenBeforeThePodGoes(t *testing.T) {
	exits := func(phase corev1.PodPhase, code int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status = nodetest.StatusOf(p, corev1.PodFailed)
			p.Status.Phase = phase
			p.Status.ContainerStatuses[0].State.Terminated.ExitCode = code
		}
	}
	for name, tc := range map[string]struct {
		end  func(*rig)
		want corev1.PodPhase
		code int32
	}{
		"failed":                   {func(r *rig) { r.provider.ChangePod("web", exits(corev1.PodFailed, 3)) }, corev1.PodFailed, 3},
		"succeeded":                {func(r *rig) { r.provider.ChangePod("web", exits(corev1.PodSucceeded, 0)) }, corev1.PodSucceeded, 0},
		"no phase, but exit codes": {func(r *rig) { r.provider.ChangePod("web", exits(corev1.PodRunning, 143)) }, corev1.PodFailed, 143},
		"no phase, and success":    {func(r *rig) { r.provider.ChangePod("web", exits(corev1.PodRunning, 0)) }, corev1.PodSucceeded, 0},
		"ended, then forgotten": {func(r *rig) {
			r.provider.ChangePod("web", exits(corev1.PodFailed, 4))
			r.provider.Forget("web")
		}, corev1.PodFailed, 4},
		"not known any more": {func(r *rig) { r.provider.Forget("web") }, "", 0},
	} {
		for kind, polls := range map[string]bool{"notified": false, "polled": true} {
			if polls && name == "ended, then forgotten" {
				continue // nobody saw it
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					if polls {
						r.handler = r.provider.Polled()
					}
					r.start()
					r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
					r.api.AddPod(aPod("web"))
					pass(time.Second)
					r.api.Written()
					r.api.DeletePod("web")
					r.api.Fail("delete pods", apierrors.NewInternalError(errors.New("to see what is there before")))
					pass(time.Second)
					wantList(t, "writes before it has stopped", r.api.Written())
					tc.end(r)
					pass(6 * time.Second)
					last := r.api.Pod("web").Status
					if tc.want == "" {
						want(t, "phase", last.Phase, corev1.PodRunning)
					} else {
						want(t, "phase", last.Phase, tc.want)
						want(t, "exit code", last.ContainerStatuses[0].State.Terminated.ExitCode, tc.code)
					}
					r.api.Fail("delete pods", nil)
					pass(time.Minute)
					want(t, "pod", r.api.Pod("web"), nil)
					writes := slices.Compact(r.api.Written())
					if tc.want == "" {
						want(t, "the last write", writes[len(writes)-1], "delete pods web")
					} else {
						wantList(t, "writes", writes, "patch pods/status web", "delete pods web")
					}
				})
			})
		}
	}
}

// A pod that never ran has no last status, nor has one that is gone already.
func TestNoLastStatusOfWhatNeverRan(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("no quota") }
		})
		r.api.AddPod(aPod("never"))
		synctest.Wait()
		r.provider.Script(func(s *nodetest.Script) { s.OnCreate = nil })
		r.api.AddPod(aPod("forced"))
		synctest.Wait()
		r.api.Written()
		r.api.DeletePod("never")
		r.api.DeletePod("forced", 0)
		pass(time.Minute)
		wantList(t, "writes", r.api.Written(), "delete pods never")
	})
}

// A pod does not go without its last status while the API server is away, however
// long, and goes seconds after it is back.
func TestLastStatusWaitsForTheAPI(t *testing.T) {
	for name, err := range map[string]error{
		"away":       errors.New("dial tcp: connection refused"),
		"starting":   apierrors.NewServiceUnavailable("starting"),
		"failing":    apierrors.NewInternalError(errors.New("etcdserver: no leader")),
		"overloaded": apierrors.NewTooManyRequests("busy", 1),
		"timeout":    apierrors.NewTimeoutError("slow", 1),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.startWith(aPod("web"))
				r.api.Written()
				r.api.Fail("patch pods/status", err)
				r.api.DeletePod("web")
				pass(time.Hour)
				if writes := slices.Compact(r.api.Written()); !slices.Equal(writes, []string{"patch pods/status web"}) {
					t.Errorf("writes: %q, want tries to write the status only", writes)
				}
				r.api.Fail("patch pods/status", nil)
				pass(6 * time.Second)
				want(t, "pod", r.api.Pod("web"), nil)
				wantList(t, "writes", r.api.Written(), "patch pods/status web", "delete pods web")
			})
		})
	}
}

// A last status that the API will never take does not keep the pod for ever.
func TestLastStatusThatIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		err        error
		after, by  time.Duration
		finalizers []string
	}{
		"invalid":           {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), by: time.Second},
		"invalid, and held": {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), by: time.Second, finalizers: []string{"batch.kubernetes.io/job-tracking"}},
		"not found":         {err: apierrors.NewNotFound(corev1.Resource("pods"), "web"), by: time.Second},
		"too large":         {err: apierrors.NewRequestEntityTooLargeError("6 MB"), by: time.Second},
		"forbidden":         {err: apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("no such role")), after: 30 * time.Second, by: 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.startWith(aPod("web", func(p *corev1.Pod) { p.Finalizers = tc.finalizers }))
				r.api.Fail("patch pods/status", tc.err)
				r.api.Written()
				r.api.DeletePod("web")
				removals := func() int {
					return len(slices.DeleteFunc(r.api.Written(), func(w string) bool { return w != "delete pods web" }))
				}
				pass(tc.after)
				if tc.after > 0 {
					want(t, "removals while the API server may not know us yet", removals(), 0)
				}
				pass(tc.by)
				want(t, "removals", removals(), 1)
			})
		})
	}
}

// The end of the agent between the last status and the removal costs neither.
func TestRestartBeforeTheRemoval(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			r.start()
			r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
			r.api.AddPod(aPod("web"))
			synctest.Wait()
			r.api.DeletePod("web")
			r.api.Fail("delete pods", errors.New("connection refused"))
			synctest.Wait()
			r.provider.SetPhase("web", corev1.PodFailed)
			pass(time.Second)
			r.end()
			r.api.Written()
			if forgotten {
				r.provider.Forget("web")
			}
			r.api.Fail("delete pods", nil)
			r.start()
			pass(10 * time.Second)
			wantList(t, "writes", r.api.Written(), "delete pods web")
			want(t, "pod", r.api.Pod("web"), nil)
		})
	}
}

// Invariant 5: a removal that the API refuses is tried again.
func TestRemovalThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.api.Fail("delete pods", apierrors.NewInternalError(errors.New("etcd")))
		r.api.DeletePod("web")
		pass(time.Hour)
		tries := len(r.api.Written())
		if tries < 60 || tries > 100 {
			t.Errorf("tried %d times in an hour, want about one a minute", tries)
		}
		want(t, "delayed removals", r.pc.Removals().Len(), 1)
		want(t, "deletes in the provider", len(r.provider.TakeCalls("delete")), 1)
		r.api.Fail("delete pods", nil)
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
		want(t, "delayed removals", r.pc.Removals().Len(), 0)
	})
}

// A 404 of a proxy before the API server is not the API server's word that a pod is gone.
func TestNotFoundOfAProxyIsNoEnd(t *testing.T) {
	proxy := apierrors.NewGenericServerResponse(404, "delete", corev1.Resource("pods"), "web", "default backend - 404", 0, true)
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		r.api.AddPod(aPod("hidden"))
		pass(time.Second)
		r.provider.TakeCalls()

		// A list lacks a pod, and the proxy does not know it either.
		r.api.Fail("get pods", proxy)
		r.api.Gap(func() { r.api.Hide("hidden", true) })
		pass(time.Minute)
		wantList(t, "deletes", r.provider.TakeCalls("delete"))
		r.api.Fail("get pods", nil)

		r.api.Fail("delete pods", proxy)
		r.api.Fail("patch pods/status", proxy)
		r.api.DeletePod("web")
		pass(time.Minute)
		want(t, "pod is still there", r.api.Pod("web") != nil, true)
		r.api.Fail("delete pods", nil)
		r.api.Fail("patch pods/status", nil)
		pass(awayDelay)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}
