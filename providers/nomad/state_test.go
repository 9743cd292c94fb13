package nomad

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad/nomadtest"
)

// aMoment is longer than Nomad's heartbeats are apart.
const aMoment = 35 * time.Second

// withSecret has a pod mount a secret, and have two init containers.
func withSecret(pod *corev1.Pod) {
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Volumes = []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password"}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "secret", MountPath: "/secret"}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox:1"}, {Name: "second", Image: "busybox:1"}}
}

// withVariables runs a test with a pod of which Nomad has two variables.
func withVariables(t *testing.T, test func(t *testing.T, r *rig, pod *corev1.Pod)) {
	t.Helper()
	inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
		r.cluster.SetSecret("password", corev1.SecretTypeOpaque, map[string][]byte{"key": []byte("hunter2")})
		pod := grouptest.NewPod("secretive")
		withSecret(pod)
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if paths := r.api.Variables(); len(paths) != 2 {
			t.Fatalf("while the pod runs the variables are %v", paths)
		}
		test(t, r, pod)
	})
}

func (r *rig) wantNoVariables(t *testing.T) {
	t.Helper()
	if paths := r.api.Variables(); len(paths) > 0 {
		t.Errorf("the variables %v stay", paths)
	}
}

// A pod that has ended leaves no Secrets in Nomad, also if nobody deletes it; each variable is
// deleted once, and not with each list.
func TestVariablesOfPodsThatHaveEnded(t *testing.T) {
	withVariables(t, func(t *testing.T, r *rig, pod *corev1.Pod) {
		before := r.world.Calls(nomadtest.ActionDeleteVar)
		if err := r.world.Exit(pod.Name, "main", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		r.wantNoVariables(t)
		r.world.BreakStreams()
		time.Sleep(aMoment)
		if n := r.world.Calls(nomadtest.ActionDeleteVar) - before; n != 2 {
			t.Errorf("two variables are deleted by %d calls", n)
		}
	})
}

// A deletion that fails is repeated, though nothing else of the pod changes.
func TestVariablesThatAreNotDeletedAtOnce(t *testing.T) {
	withVariables(t, func(t *testing.T, r *rig, pod *corev1.Pod) {
		r.world.Refuse(nomadtest.ActionDeleteVar, 1, &grouptest.Refusal{Status: 500, Message: "No cluster leader"})
		if err := r.world.Exit(pod.Name, "main", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(aMoment)
		r.wantNoVariables(t)
	})
}

// A Secret that is written while its pod ends is deleted though nothing of the pod changes any more.
func TestVariablesThatAreWrittenAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(*grouptest.World, string) error{
		"the pod has ended": func(w *grouptest.World, pod string) error { return w.Exit(pod, "main", 0) },
		"the job is gone":   (*grouptest.World).Remove,
	} {
		t.Run(name, func(t *testing.T) {
			withVariables(t, func(t *testing.T, r *rig, pod *corev1.Pod) {
				page, err := r.backend.List(t.Context(), nil, "")
				if err != nil {
					t.Fatal(err)
				}
				at := slices.IndexFunc(page.Units, func(u podgroup.Unit) bool { return u.Tags[podgroup.TagPodName] == pod.Name })
				if err := end(r.world, pod.Name); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				r.wantNoVariables(t)
				files := map[string]volume.Files{"secret": {"key": {Data: []byte("hunter3")}}}
				if err := r.backend.Update(t.Context(), &page.Units[at], podgroup.Change{Pod: pod, Files: files}); err != nil || len(r.api.Variables()) != 1 {
					t.Fatalf("an update leaves the variables %v, error %v", r.api.Variables(), err)
				}
				time.Sleep(2 * aMoment)
				r.wantNoVariables(t)
			})
		})
	}
}

// Others that remove a job do not remove its variables.
func TestVariablesOfJobsThatOthersRemove(t *testing.T) {
	for name, notice := range map[string]func(*rig){
		"by an event": func(*rig) {},
		"by a list":   func(r *rig) { r.api.ForgetEvents(); r.world.BreakStreams() },
	} {
		t.Run(name, func(t *testing.T) {
			withVariables(t, func(t *testing.T, r *rig, pod *corev1.Pod) {
				notice(r)
				if err := r.world.Remove(pod.Name); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * aMoment)
				r.wantNoVariables(t)
			})
		})
	}
}

// A list that lacks jobs because of a right that is missing does not say that they are gone.
func TestVariablesOfHiddenJobs(t *testing.T) {
	withVariables(t, func(t *testing.T, r *rig, _ *corev1.Pod) {
		r.world.Hide(true)
		r.world.BreakStreams()
		time.Sleep(2 * aMoment)
		if paths := r.api.Variables(); len(paths) != 2 {
			t.Errorf("of a pod that runs the variables are %v", paths)
		}
	})
}

// A job that is not registered has no deletion that would delete its variables.
func TestVariablesOfJobsThatAreNotRegistered(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
		r.cluster.SetSecret("password", corev1.SecretTypeOpaque, map[string][]byte{"key": []byte("hunter2")})
		r.world.Refuse(nomadtest.ActionRegister, 1, &grouptest.Refusal{Status: 500, Message: "No cluster leader"})
		pod := grouptest.NewPod("secretive")
		withSecret(pod)
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); err == nil {
			t.Fatal("the pod is created")
		}
		time.Sleep(2 * aMoment)
		r.wantNoVariables(t)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(aMoment)
		if paths := r.api.Variables(); len(paths) != 2 {
			t.Errorf("of a pod that is created by another attempt the variables are %v", paths)
		}
	})
}

// The next process finds the variables of pods that it has never seen, and only those of its node.
func TestVariablesOfAnEarlierProcess(t *testing.T) {
	withVariables(t, func(t *testing.T, r *rig, pod *corev1.Pod) {
		other := newTestBackend(t, r.api)
		other.node = "vk-2"
		signed := []*api.Variable{{Path: variablePath("vk-other", "main"), Items: api.VariableItems{"key": "x"}}}
		unsigned := &api.Variable{Path: variablePath("vk-unknown", "main"), Items: api.VariableItems{"key": "x"}}
		_, _, err := r.backend.api.Variables().Update(unsigned, nil)
		if err := errors.Join(err, other.putVariables(t.Context(), podgroup.ActionCreate, "vk-other", signed)); err != nil {
			t.Fatal(err)
		}
		r.world.Refuse(nomadtest.ActionRegister, 1, &grouptest.Refusal{Status: 500, Message: "No cluster leader"})
		lost, runs := grouptest.NewPod("lost"), grouptest.NewPod("runs")
		for _, pod := range []*corev1.Pod{lost, runs} {
			withSecret(pod)
			r.cluster.SetPod(pod)
			if err := r.CreatePod(t.Context(), pod); (err == nil) != (pod == runs) {
				t.Fatalf("pod %s is created: %v", pod.Name, err)
			}
		}
		time.Sleep(5 * time.Second)
		before := r.api.Variables() // two of the pod, one that was not registered, two that runs, two of others
		grouptest.Close(t, r.Provider)
		if err := r.world.Remove(pod.Name); err != nil {
			t.Fatal(err)
		}
		r.world.Refuse(nomadtest.ActionVar, 1, &grouptest.Refusal{Status: 403, Message: "Permission denied"})
		r.start(t)
		time.Sleep(2 * aMoment)
		if paths := r.api.Variables(); len(before) != 7 || len(paths) != 7 {
			t.Errorf("the variables were %v, and are %v while the token may not read them", before, paths)
		}
		r.world.BreakStreams()
		time.Sleep(2 * aMoment)
		if paths := r.api.Variables(); len(paths) != 7 {
			t.Errorf("while the earlier process may be about to register their jobs, of %v another process leaves the variables %v", before, paths)
		}
		time.Sleep(leftAfter + aMoment)
		job := r.backend.cfg.JobPrefix + "default-runs"
		if paths := r.api.Variables(); len(paths) != 4 || !strings.Contains(paths[0], job) || !strings.Contains(paths[1], job) {
			t.Errorf("another process leaves the variables %v", paths)
		}
	})
}

// A process finds also those that are left after it has started: another process may have gone on for a
// while, or others have removed a job that no list has shown.
func TestVariablesThatAreLeftLater(t *testing.T) {
	withVariables(t, func(t *testing.T, r *rig, pod *corev1.Pod) {
		time.Sleep(2 * leftAfter)
		left := []*api.Variable{{Path: variablePath("vk-left", "main"), Items: api.VariableItems{"key": "x"}}}
		if err := newTestBackend(t, r.api).putVariables(t.Context(), podgroup.ActionCreate, "vk-left", left); err != nil {
			t.Fatal(err)
		}
		if paths := r.api.Variables(); len(paths) != 3 {
			t.Fatalf("the variables are %v", paths)
		}
		time.Sleep(sweepInterval + 2*aMoment)
		if paths := r.api.Variables(); len(paths) != 2 || slices.Contains(paths, left[0].Path) {
			t.Errorf("an hour later the variables are %v", paths)
		}
		if status := r.phase(t, pod); status.Phase != corev1.PodRunning {
			t.Errorf("the pod is %+v", status)
		}
	})
}

// Of a job whose registration got no answer the variables stay.
func TestVariablesOfLostAnswers(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
		r.cluster.SetSecret("password", corev1.SecretTypeOpaque, map[string][]byte{"key": []byte("hunter2")})
		r.world.Lose(nomadtest.ActionRegister, 1)
		pod := grouptest.NewPod("secretive")
		withSecret(pod)
		r.cluster.SetPod(pod)
		_ = r.CreatePod(t.Context(), pod) // it may have tried again
		time.Sleep(aMoment)
		if paths := r.api.Variables(); len(paths) != 2 {
			t.Errorf("the variables are %v", paths)
		}
		if err := r.world.Exit(pod.Name, "main", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(aMoment)
		r.wantNoVariables(t)
	})
}

// A registration fails, and a new leader knows of it a while later: until then it has no such job.
func TestVariablesOfJobsThatAreRegisteredLate(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
		r.world.Refuse(nomadtest.ActionRegister, 1, &grouptest.Refusal{Status: 500, Message: "leadership lost while committing log"})
		pod := grouptest.NewPod("secretive")
		withSecret(pod)
		b := r.backend
		tags := map[string]string{podgroup.TagClusterName: b.cfg.ClusterName, podgroup.TagNodeName: b.node}
		request := &podgroup.Request{Pod: pod, Name: "secretive", Tags: tags, Files: map[string]volume.Files{"secret": {"key": {Data: []byte("hunter2")}}}}
		job, err := b.job(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Create(t.Context(), request); err == nil {
			t.Fatal("the pod is created")
		}
		time.Sleep(aMoment)
		if _, _, err := b.api.Jobs().EnforceRegister(job, 0, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * aMoment)
		if paths := r.api.Variables(); !slices.Contains(paths, variablePath(*job.ID, "main")) {
			t.Errorf("the variables are %v", paths)
		}
	})
}

// A turn that could not be written is written later, though no event comes.
func TestTurnThatFails(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
		r.world.Refuse(nomadtest.ActionPutVar, 1, &grouptest.Refusal{Status: 500, Message: "No cluster leader"})
		pod := grouptest.NewPod("inits")
		pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox:1"}, {Name: "second", Image: "busybox:1"}}
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		lists := r.world.Calls(nomadtest.ActionJobs)
		time.Sleep(aMoment)
		if n := len(r.api.Variables()); n != 1 || r.world.Calls(nomadtest.ActionJobs) != lists {
			t.Errorf("after a heartbeat there are %d turns, and %d more lists", n, r.world.Calls(nomadtest.ActionJobs)-lists)
		}
	})
}

// A pod is created as soon as the variables of an earlier job are deleted.
func TestCreationDuringADeletion(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
		if !r.backend.claim("vk-waits", math.MaxUint64) {
			t.Fatal("nobody has claimed the variables")
		}
		go func() {
			time.Sleep(time.Second)
			r.backend.release("vk-waits", nil)
		}()
		if _, err := r.backend.Create(t.Context(), &podgroup.Request{Pod: grouptest.NewPod("waits"), Name: "waits"}); err != nil {
			t.Error(err)
		}
		if !r.backend.claim("vk-waits", math.MaxUint64) {
			t.Fatal("the variables of a job that is created are not free")
		}
		defer r.backend.release("vk-waits", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.backend.Create(ctx, &podgroup.Request{Pod: grouptest.NewPod("waits"), Name: "waits"}); !errdefs.IsUnavailable(err) {
			t.Errorf("a deletion that does not end gives %v", err)
		}
	})
}

// The init containers of a pod that is created again wait for their turn, though the job before
// has left its variable. If there is a job already, its turns are written again.
func TestTurnsOfAnEarlierJob(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
		pod := grouptest.NewPod("inits")
		pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox:1"}, {Name: "second", Image: "busybox:1"}}
		b := newTestBackend(t, r.api)
		leftover := &api.Variable{Namespace: "default", Path: turnsPath("vk-inits"), Items: api.VariableItems{"turn1": "open"}}
		if err := b.putVariables(t.Context(), podgroup.ActionUpdate, "vk-inits", []*api.Variable{leftover}); err != nil {
			t.Fatal(err)
		}
		for _, again := range []int{0, 1} {
			if _, err := b.Create(t.Context(), &podgroup.Request{Pod: pod, Name: "inits"}); err != nil {
				t.Fatal(err)
			}
			if paths := r.api.Variables(); len(paths) != 0 || len(b.again) != again {
				t.Errorf("once the job is registered the variables are %v, and %v is tried again", paths, b.again)
			}
		}
	})
}

// A registration whose answer was lost is repeated, and deletes the turns that were written since
// it has begun: they are written again, whether it finds the job or fails.
func TestTurnsThatARegistrationDeletes(t *testing.T) {
	for name, fails := range map[string]bool{"and finds the job": false, "and fails": true} {
		t.Run(name, func(t *testing.T) {
			withVariables(t, func(t *testing.T, r *rig, pod *corev1.Pod) {
				b := r.backend
				b.mu.Lock()
				var known *record
				for _, rec := range b.records {
					if rec.meta[podgroup.TagPodName] == pod.Name {
						known = rec
					}
				}
				b.mu.Unlock()
				request := &podgroup.Request{Pod: pod, Name: strings.TrimPrefix(known.id, b.cfg.JobPrefix), Tags: known.meta}
				job, err := b.job(request)
				if err := errors.Join(err, b.begin(t.Context(), known.id), b.openTurns(t.Context(), known)); err != nil {
					t.Fatal(err)
				}
				if fails {
					r.world.Refuse(nomadtest.ActionRegister, 1, &grouptest.Refusal{Status: 500, Message: "No cluster leader"})
				}
				_, index, err := b.register(t.Context(), job, request)
				b.end(job, index, err)
				if paths := r.api.Variables(); (err != nil) != fails || slices.Contains(paths, turnsPath(known.id)) {
					t.Fatalf("the registration leaves the variables %v, error %v", paths, err)
				}
				time.Sleep(aMoment)
				if paths := r.api.Variables(); !slices.Contains(paths, turnsPath(known.id)) {
					t.Errorf("after a heartbeat the variables are %v", paths)
				}
			})
		})
	}
}

// A pod whose job was removed, or is removed since it was stopped, is created again once Nomad has
// stopped the old allocation, which the new job would get otherwise. The allocation of the new job
// does not hold up another attempt.
func TestAllocationOfAnEarlierJob(t *testing.T) {
	for name, wasStopped := range map[string]bool{"that was removed": false, "that was stopped": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, nil, func(t *testing.T, r *rig, pod *corev1.Pod) {
				page, err := r.backend.List(t.Context(), nil, "")
				if err != nil {
					t.Fatal(err)
				}
				id := page.Units[0].ID
				if wasStopped {
					_, _, err = r.backend.api.Jobs().Deregister(id, false, nil)
				} else {
					pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}}
					err = r.world.Remove(pod.Name)
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				old := &api.AllocationListStub{ID: "old", JobID: id, DesiredStatus: api.AllocDesiredStatusRun, ClientStatus: api.AllocClientStatusRunning}
				r.api.Others = []*api.AllocationListStub{old}
				request := &podgroup.Request{Pod: pod, Name: strings.TrimPrefix(id, r.backend.cfg.JobPrefix), Tags: page.Units[0].Tags}
				if u, err := r.backend.Create(t.Context(), request); !errdefs.IsUnavailable(err) {
					t.Errorf("while the old allocation runs, %s is created, error %v", u.ID, err)
				}
				old.DesiredStatus = api.AllocDesiredStatusStop
				for range 2 {
					if _, err := r.backend.Create(t.Context(), request); err != nil {
						t.Error(err)
					}
					time.Sleep(3 * time.Second)
				}
			})
		})
	}
}

// A job that could not be stopped is stopped later.
func TestDisplacedPodThatIsNotStopped(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, pod *corev1.Pod) {
		r.world.Refuse(nomadtest.ActionDeregister, 1, &grouptest.Refusal{Status: 500, Message: "No cluster leader"})
		r.api.Displace(pod.Name, api.AllocDesiredStatusStop, api.AllocClientStatusLost)
		time.Sleep(2 * aMoment)
		if u, err := r.world.OfPod(pod.Name); err == nil {
			t.Errorf("the job goes on elsewhere: %v", u.Phase)
		}
	})
}
