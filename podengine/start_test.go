package podengine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestPodStarts(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a b")
		r.create(pod)
		r.wantCalls("RunPodSandbox p", "CreateContainer a", "StartContainer a", "CreateContainer b", "StartContainer b")
		r.wantState(pod, "Running a=ready b=ready")
		r.wantEvents(
			`Normal Pulling {a}: Pulling image "image:1"`,
			`Normal Pulled {a}: Successfully pulled image "image:1" in 0s (0s including waiting). Image size: 100 bytes.`,
			`Normal Created {a}: Container created`,
			`Normal Started {a}: Container started`,
			`Normal Pulled {b}: Container image "image:1" already present on machine and can be accessed by the pod`,
			`Normal Created {b}: Container created`,
			`Normal Started {b}: Container started`,
		)
		s := r.status(pod)
		if s.PodIP != "10.0.0.1" || s.HostIP != "192.0.2.1" || s.StartTime == nil {
			t.Errorf("podIP %q, hostIP %q, startTime %v", s.PodIP, s.HostIP, s.StartTime)
		}
		if id := s.ContainerStatuses[0].ContainerID; !strings.HasPrefix(id, "fake://c-a-") {
			t.Errorf("containerID %q", id)
		}
		for _, c := range s.Conditions {
			if c.Status != corev1.ConditionTrue {
				t.Errorf("condition %s is %s", c.Type, c.Status)
			}
		}
	})
}

func TestInitContainersAndSidecarsStartInOrder(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["i1"] = plan{runs: 5 * time.Second}
		r.runtime.plans["i2"] = plan{runs: 5 * time.Second}
		pod := makePod("i1 s1 i2 a")
		r.create(pod)
		r.wantState(pod, "Pending i1=running s1=PodInitializing i2=PodInitializing a=PodInitializing")
		r.after(6 * time.Second)
		r.wantState(pod, "Pending i1=Completed/0 s1=ready i2=running a=PodInitializing")
		r.after(6 * time.Second)
		r.wantState(pod, "Running i1=Completed/0 s1=ready i2=Completed/0 a=ready")
		r.wantCalls("RunPodSandbox p", "CreateContainer i1", "StartContainer i1", "CreateContainer s1", "StartContainer s1",
			"CreateContainer i2", "StartContainer i2", "CreateContainer a", "StartContainer a")
	})
}

func TestFailedInitContainerOfAPodThatRunsOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["i"] = plan{runs: time.Second, code: 3}
		pod := makePod("i a", never)
		r.create(pod)
		r.after(3 * time.Second)
		r.wantState(pod, "Failed i=Error/3 a=PodInitializing")
	})
}

func TestRestartPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policy func(*corev1.Pod)
		code   int32
		want   string
	}{
		"Never succeeds":     {never, 0, "Succeeded a=Completed/0"},
		"Never fails":        {never, 2, "Failed a=Error/2"},
		"OnFailure succeeds": {onFailure, 0, "Succeeded a=Completed/0"},
		"OnFailure fails":    {onFailure, 2, "Running a=ready#1"},
		"Always succeeds":    {func(*corev1.Pod) {}, 0, "Running a=ready#1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["a"] = plan{runs: 10 * time.Second, code: c.code}
				pod := makePod("a", c.policy)
				r.create(pod)
				r.after(13 * time.Second)
				r.wantState(pod, c.want)
			})
		})
	}
}

func TestSidecarsEndWithThePod(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Second}
		pod := makePod("s1 s2 a", never)
		r.create(pod)
		r.after(3 * time.Second)
		r.wantState(pod, "Succeeded s1=Completed/0 s2=Completed/0 a=Completed/0")
		calls := r.runtime.did()
		if want := []string{"StopContainer s2 30", "StopContainer s1 30", "StopPodSandbox"}; !slices.Equal(calls[len(calls)-3:], want) {
			t.Errorf("the runtime was asked to %v, want %v in the end", calls, want)
		}
	})
}

func TestFailingPull(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.images.pull = func(context.Context, string) error { return errors.New("no such image") }
		pod := makePod("a b", first(func(c *corev1.Container) { c.Image = "other:1" }))
		r.create(pod)
		r.wantState(pod, "Pending a=ErrImagePull b=ErrImagePull")
		r.after(7 * time.Second)
		r.wantState(pod, "Pending a=ImagePullBackOff b=ImagePullBackOff")
		r.images.mu.Lock()
		r.images.pull = nil
		r.images.mu.Unlock()
		r.after(12 * time.Second)
		r.wantState(pod, "Running a=ready b=ready")
		if n := r.events.count("Error: ErrImagePull"); n != 2 {
			t.Errorf("%d events of the failed pulls, want 2", n)
		}
	})
}

func TestMissingConfigMapHoldsUpOneContainer(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a b", first(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Key: "x"}}}}
		}))
		r.create(pod)
		r.wantState(pod, "Pending a=CreateContainerConfigError b=ready")
		r.after(5 * time.Minute)
		if n := r.events.count("Warning Failed {a}"); n != 1 {
			t.Errorf("the same was reported %d times", n)
		}
		r.after(time.Second / 2)
		r.objects.put("cm", map[string]string{"x": "1"})
		r.after(0)
		r.wantState(pod, "Running a=ready b=ready")
		for _, env := range r.runtime.newest("a").config.Envs {
			if env.Key == "X" && string(env.Value) != "1" {
				t.Errorf("X is %q", env.Value)
			}
		}
	})
}

func TestEnvironmentRefersToAnotherContainer(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a b", first(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
				ContainerName: "b", Resource: "requests.cpu"}}}}
		}), func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Requests = cpu("3") })
		r.create(pod)
		r.wantState(pod, "Running a=ready b=ready")
	})
}

func TestRuntimeThatCannotStartContainers(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.intercept(func(_ context.Context, call string) error {
			if call == "StartContainer a" {
				return errors.New("no such command")
			}
			return nil
		})
		pod := makePod("a")
		r.create(pod)
		r.wantState(pod, "Pending a=RunContainerError")
		r.after(time.Minute)
		if n := len(r.runtime.did()); n > 40 {
			t.Errorf("it was tried without a pause: %d calls in a minute", n)
		}
		r.runtime.set(func() { r.runtime.before = nil })
		r.after(11 * time.Second)
		r.wantState(pod, "Running a=ready")
	})
}

func TestSandboxFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.intercept(func(_ context.Context, call string) error {
			if call == "RunPodSandbox p" {
				return errors.New("no network")
			}
			return nil
		})
		pod := makePod("a")
		r.create(pod)
		r.after(time.Minute)
		r.wantState(pod, "Pending a=ContainerCreating")
		r.wantEvents("Warning FailedCreatePodSandBox: Failed to create pod sandbox: no network")
		r.runtime.set(func() { r.runtime.before = nil })
		r.after(11 * time.Second)
		r.wantState(pod, "Running a=ready")
	})
}

func TestSandboxIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["i"] = plan{runs: time.Second}
		pod := makePod("i a")
		r.create(pod)
		r.after(3 * time.Second)
		r.wantState(pod, "Running i=Completed/0 a=ready")
		r.runtime.did()
		r.events.drain()
		for range 3 {
			r.runtime.loseSandbox(r.runtime.box())
			r.after(5 * time.Minute)
		}
		r.wantState(pod, "Running i=Completed/0#3 a=ready#3")
		if n := r.events.count("Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created."); n != 3 {
			t.Errorf("it was reported %d times", n)
		}
		if n := len(r.runtime.boxes); n > 3 {
			t.Errorf("%d sandboxes are left", n)
		}
		r.runtime.did()
		r.delete(pod, 30)
		r.after(time.Second)
		r.wantGone(pod)
	})
}

func TestPostStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.exec = func(ctx context.Context, container string, _ []string) error {
			if container == "a" {
				return errors.New("no")
			}
			return nil
		}
		pod := makePod("a b", func(p *corev1.Pod) {
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: command("hook")}}
			}
		})
		r.create(pod)
		r.wantState(pod, "Running a=PostStartHookError b=ready")
		events := r.events.drain()
		for _, want := range []string{"Normal Killing {a}: FailedPostStartHook", "Warning FailedPostStartHook {a}: PostStartHook failed"} {
			if !slices.Contains(events, want) {
				t.Errorf("events are %q, want %q", events, want)
			}
		}
		if message := r.status(pod).ContainerStatuses[0].State.Waiting.Message; !strings.Contains(message, "hook") {
			t.Errorf("the status says %q", message)
		}
		r.after(5 * time.Second)
		r.wantState(pod, "Running a=CrashLoopBackOff#1 b=ready")
	})
}

func TestEphemeralContainers(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.runtime.plans["debug"] = plan{runs: time.Minute}
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"}, TargetContainerName: "a",
		}}
		r.update(pod)
		r.wantState(pod, "Running a=ready debug=running")
		if id := r.runtime.newest("debug").config.Linux.SecurityContext.NamespaceOptions.TargetId; id != r.runtime.newest("a").Id {
			t.Errorf("the target is %q", id)
		}
		r.after(2 * time.Minute)
		r.wantState(pod, "Running a=ready debug=Completed/0")
	})
}

// An ephemeral container waits for the container that it is to see the processes of.
func TestEphemeralContainersWaitForTheirTarget(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["i"] = plan{runs: time.Minute}
		pod := makePod("i a")
		r.create(pod)
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"}, TargetContainerName: "a",
		}}
		r.update(pod)
		r.after(30 * time.Second)
		r.wantState(pod, "Pending i=running a=PodInitializing debug=CreateContainerConfigError")
		if n := r.events.count("Warning Failed {debug}: Error: unable to find target container a"); n != 1 {
			t.Errorf("events are %q", r.events.drain())
		}
		r.after(time.Minute)
		r.wantState(pod, "Running i=Completed/0 a=ready debug=running")
		if id := r.runtime.newest("debug").config.Linux.SecurityContext.NamespaceOptions.TargetId; id != r.runtime.newest("a").Id {
			t.Errorf("the target is %q", id)
		}
	})
}

// What the runtime says of a container that it cannot make or start is reported without what gRPC adds.
func TestStartErrorsOfTheRuntime(t *testing.T) {
	for call, reason := range map[string]string{"CreateContainer a": "CreateContainerError", "StartContainer a": "RunContainerError"} {
		t.Run(call, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.intercept(func(_ context.Context, did string) error {
					if did == call {
						return status.Error(codes.Unknown, "no such user")
					}
					return nil
				})
				pod := makePod("a")
				r.create(pod)
				if w := r.status(pod).ContainerStatuses[0].State.Waiting; w == nil || w.Reason != reason || w.Message != "no such user" {
					t.Errorf("the container waits for %v", w)
				}
				if events := r.events.drain(); !slices.Contains(events, "Warning Failed {a}: Error: no such user") {
					t.Errorf("events are %q", events)
				}
			})
		})
	}
}

// An ephemeral container may mount what no container of the pod has mounted so far.
func TestEphemeralContainersMountVolumes(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch"}, configMapVolume("cm"), {Name: "other"}}
		})
		r.create(pod)
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "debug:1", VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
		}}}
		r.update(pod)
		r.wantState(pod, "Running a=ready debug=running")
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "more", Image: "debug:1", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
		}})
		r.update(pod)
		r.wantState(pod, "Running a=ready debug=running more=ContainerCreating")
		r.runtime.exit(r.runtime.newest("a").Id, 1)
		r.after(time.Minute)
		r.wantState(pod, "Running a=ready#1 debug=running more=ContainerCreating") // others are not held up
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "last", Image: "debug:1", VolumeMounts: []corev1.VolumeMount{{Name: "other", MountPath: "/other"}, {Name: "scratch", MountPath: "/scratch"}},
		}})
		r.update(pod)
		r.wantState(pod, "Running a=ready#1 debug=running more=ContainerCreating last=running")
		r.objects.put("cm", nil)
		r.after(0)
		r.wantState(pod, "Running a=ready#1 debug=running more=running last=running")
	})
}

// configMapVolume is a volume named v of a ConfigMap.
func configMapVolume(name string) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, DefaultMode: ptr.To[int32](0o644)}}}
}

func TestImageOfARunningPodChanges(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.after(time.Minute)
		r.events.drain()
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].Image = "image:2"
		r.update(pod)
		r.wantState(pod, "Running a=ready#1")
		if n := r.events.count("Normal Killing {a}: Container a definition changed, will be restarted"); n != 1 {
			t.Errorf("events are %v", r.events.drain())
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := New(t.Context(), Config{}); !errdefsIsInvalid(err) {
		t.Errorf("an empty Config: %v", err)
	}
}

func TestMissingVolumeIsReportedOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{configMapVolume("cm")}
		}, first(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}} }))
		r.create(pod)
		r.after(10 * time.Minute)
		r.wantState(pod, "Pending a=ContainerCreating")
		r.wantEvents(`Warning FailedMount: MountVolume.SetUp failed for volume "v" : configmap "cm" not found`)
		r.after(time.Hour)
		r.wantEvents(`Warning FailedMount: MountVolume.SetUp failed for volume "v" : configmap "cm" not found`)
		r.objects.put("cm", nil)
		r.after(0)
		r.wantState(pod, "Running a=ready")
	})
}
