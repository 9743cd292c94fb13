package podengine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// restartsAllOn has a container restart all containers of its pod when it ends with
// a code.
func restartsAllOn(code int32) func(*corev1.Pod) {
	return first(func(c *corev1.Container) {
		never := corev1.ContainerRestartPolicyNever
		c.RestartPolicy = &never
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
		}}
	})
}

// A rule RestartAllContainers ends all containers and runs them again, init
// containers first, in the same sandbox with the same volumes; also if the process
// is killed in between.
func TestRestartAllContainers(t *testing.T) {
	for name, killed := range map[string]bool{"": false, "killed while it stops them": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["i"] = plan{runs: time.Second}
				r.runtime.plans["a"] = plan{runs: 10 * time.Second, code: 42}
				r.runtime.plans["b"] = plan{lingers: time.Hour}
				pod := makePod("i s a b", never, restartsAllOn(42))
				r.create(pod)
				r.after(9 * time.Second)
				r.wantState(pod, "Running i=Completed/0 s=ready a=ready b=ready")
				r.runtime.did()
				r.runtime.set(func() { r.runtime.plans["a"] = plan{runs: 10 * time.Minute} })
				if killed {
					r.runtime.intercept(func(ctx context.Context, call string) error {
						if strings.HasPrefix(call, "StopContainer b") {
							return forever(ctx)
						}
						return nil
					})
					r.after(5 * time.Second)
					r.end()
					r.runtime.intercept(nil)
					r.begin()
					r.after(2 * time.Second)
				} else {
					r.after(7 * time.Second)
				}
				r.after(7 * time.Second)
				r.wantState(pod, "Running i=Completed/0#1 s=ready#1 a=ready#1 b=ready#1")
				r.mu.Lock()
				if !slices.ContainsFunc(r.notified, func(p *corev1.Pod) bool { return isTrue(p.Status, corev1.AllContainersRestarting) }) {
					t.Error("no status reported that all containers are restarting")
				}
				r.mu.Unlock()
				if c := condition(r.status(pod), corev1.AllContainersRestarting); c == nil || c.Status != corev1.ConditionFalse {
					t.Errorf("after the restart the condition is %v", c)
				}
				if last := r.status(pod).ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 42 {
					t.Errorf("the last state is %v", last)
				}
				calls := r.runtime.did()
				if slices.ContainsFunc(calls, func(call string) bool { return strings.Contains(call, "Sandbox") }) {
					t.Errorf("calls are %v", calls)
				}
				var starts []string
				for _, call := range calls {
					if name, ok := strings.CutPrefix(call, "StartContainer "); ok {
						starts = append(starts, name)
					}
				}
				if want := []string{"i", "s", "a", "b"}; !slices.Equal(starts, want) {
					t.Errorf("started %v, want %v", starts, want)
				}
				r.restart(time.Hour)
				if killed {
					return
				}
				r.after(time.Minute)
				r.wantState(pod, "Running i=Completed/0#1 s=ready#1 a=Completed/0#1 b=ready#1") // without the rule's code its policy counts
			})
		})
	}
}

// A container that restarts all each time it runs is held back like one that crashes.
func TestRestartAllContainersBacksOff(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Second, code: 42}
		pod := makePod("a b", never, restartsAllOn(42))
		r.create(pod)
		r.after(10 * time.Minute)
		if n := r.runtime.newest("b").Metadata.Attempt; n < 3 || n > 8 {
			t.Errorf("all containers were started again %d times in ten minutes", n)
		}
	})
}

// Containers that another one has restarted, time and again, have not crashed: when one
// of them does, it starts again at once.
func TestRestartAllContainersIsNoCrashOfOthers(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Second, code: 42}
		pod := makePod("a b", onFailure, restartsAllOn(42))
		r.create(pod)
		r.after(3 * time.Minute)
		r.runtime.set(func() { r.runtime.plans["a"] = plan{runs: 24 * time.Hour} })
		r.after(6 * time.Minute)
		b := r.runtime.newest("b")
		if b.Metadata.Attempt < 3 {
			t.Fatalf("b was started again %d times", b.Metadata.Attempt)
		}
		r.runtime.exit(b.Id, 1)
		r.after(3 * time.Second)
		if s := r.status(pod).ContainerStatuses[1]; s.State.Running == nil {
			t.Errorf("after its first crash b is %s", stateOf(s))
		}
	})
}

func condition(s corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

func isTrue(s corev1.PodStatus, kind corev1.PodConditionType) bool {
	c := condition(s, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// The API says that all containers of a pod are restarting only for as long as they are.
func TestRestartOfAllContainersInTheAPI(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: 10 * time.Second, code: 42}
		api := fakeapi.New(t)
		stop := r.withController(api)
		defer stop()
		pod := makePod("a b", never, restartsAllOn(42))
		pod.Namespace, pod.Spec.NodeName = "default", "vk"
		api.AddPod(pod)
		is := func(when string, want bool) {
			t.Helper()
			if got := api.Pod(pod.Name).Status; isTrue(got, corev1.AllContainersRestarting) != want {
				t.Errorf("%s the conditions are %v", when, got.Conditions)
			}
		}
		r.after(5 * time.Second)
		is("before the restart", false)
		r.runtime.set(func() { r.runtime.plans["a"] = plan{runs: 24 * time.Hour} })
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if strings.HasPrefix(call, "CreateContainer") {
				return errors.New("not now")
			}
			return nil
		})
		r.after(10 * time.Second)
		is("while they wait to be started again", true)
		r.runtime.intercept(nil)
		r.after(time.Minute)
		is("after the restart", false)
	})
}

// Variables with a fileKeyRef get what a file in a volume says when the container
// starts, or the container does not start.
func TestVariablesFromFiles(t *testing.T) {
	for name, test := range map[string]struct {
		write    func(dir string) error
		optional bool
		want     string // of the variable; empty if the container does not start
	}{
		"a value":                  {func(dir string) error { return os.WriteFile(filepath.Join(dir, "env"), []byte("K='v'\n"), 0o644) }, false, "v"},
		"no file":                  {func(string) error { return nil }, false, ""},
		"no file, optional":        {func(string) error { return nil }, true, "(none)"},
		"no key":                   {func(dir string) error { return os.WriteFile(filepath.Join(dir, "env"), []byte("A='v'\n"), 0o644) }, false, ""},
		"no key, optional":         {func(dir string) error { return os.WriteFile(filepath.Join(dir, "env"), nil, 0o644) }, true, "(none)"},
		"a link out of the volume": {func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "env")) }, false, ""},
		"a directory":              {func(dir string) error { return os.Mkdir(filepath.Join(dir, "env"), 0o755) }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				pod := makePod("i a", func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
					p.Spec.InitContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
				}, first(func(c *corev1.Container) {
					c.Env = []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{
						VolumeName: "data", Path: "env", Key: "K", Optional: &test.optional,
					}}}}
				}))
				r.runtime.plans["i"] = plan{runs: time.Second}
				r.create(pod)
				if err := test.write(filepath.Join(r.podDir(pod.UID), "volumes/kubernetes.io~empty-dir/data")); err != nil {
					t.Fatal(err)
				}
				r.after(3 * time.Second)
				if test.want == "" {
					r.wantState(pod, "Pending i=Completed/0 a=CreateContainerConfigError")
					if n := r.events.count("Warning Failed {a}: Error: "); n == 0 {
						t.Errorf("events are %v", r.events.drain())
					}
					return
				}
				r.wantState(pod, "Running i=Completed/0 a=ready")
				got := "(none)"
				for _, v := range r.runtime.newest("a").config.Envs {
					if v.Key == "V" {
						got = string(v.Value)
					}
				}
				if got != test.want {
					t.Errorf("the variable is %q, want %q", got, test.want)
				}
			})
		})
	}
}
