package podengine

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The final status of a pod shows no container that still waits, as with a kubelet:
// kubectl would show ContainerCreating for ever in place of why the pod has ended.
func TestContainersThatNeverRanHaveEndedWithTheirPod(t *testing.T) {
	const lost = "ContainerStatusUnknown/137"
	forever := func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}
	deadline := func(pod *corev1.Pod) {
		seconds := int64(5)
		pod.Spec.ActiveDeadlineSeconds = &seconds
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		pull func(ctx context.Context, image string) error
		plan map[string]plan
		want string
	}{
		"during a pull":                   {makePod("a b", deadline), forever, nil, "Failed a=" + lost + " b=" + lost},
		"before the first init container": {makePod("i a", deadline), forever, nil, "Failed i=" + lost + " a=PodInitializing"},
		"while init containers run":       {makePod("i1 i2 a", deadline), nil, nil, "Failed i1=Error/143 i2=PodInitializing a=PodInitializing"},
		"rejected":                        {makePod("i a", func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), nil, nil, "Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.images.pull = test.pull
				for name, p := range test.plan {
					r.runtime.plans[name] = p
				}
				r.runtime.plans["i1"] = plan{stopCode: 143}
				r.create(test.pod)
				r.after(time.Minute)
				r.wantState(test.pod, test.want)
				r.restart(time.Minute)
				r.after(time.Minute)
				r.wantState(test.pod, test.want)
			})
		})
	}
}

// A pod that this node does not take says so in the kubelet's words.
func TestRejectedPodSaysSo(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} })
		r.create(pod)
		const why = "Failed to admit pod as the OS field doesn't match node OS"
		if s := r.status(pod); s.Reason != "PodOSNotSupported" || s.Message != "Pod was rejected: "+why {
			t.Errorf("%s: %s", s.Reason, s.Message)
		}
		r.wantEvents("Warning PodOSNotSupported: " + why)
	})
}

// A pod has failed, or succeeded, once nothing of it runs any more: its controller
// starts another one then. A restart meanwhile shortens no grace period.
func TestThePhaseIsFinalOnceNothingRuns(t *testing.T) {
	for name, test := range map[string]struct {
		pod            *corev1.Pod
		before, during string
		after          string
	}{
		"a sidecar, an init container that fails": {makePod("s i a", never), "Pending s=ready i=running a=PodInitializing", "Pending s=ready i=Error/1 a=PodInitializing", "Failed s=Completed/0 i=Error/1 a=PodInitializing"},
		"a sidecar":              {makePod("s z", never), "Running s=ready z=ready", "Running s=ready z=Completed/0", "Succeeded s=Completed/0 z=Completed/0"},
		"an ephemeral container": {makePod("z", never, debugger), "Running z=ready s=running", "Running z=Completed/0 s=running", "Succeeded z=Completed/0 s=Completed/0"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["s"] = plan{lingers: 20 * time.Second}
				r.runtime.plans["i"] = plan{runs: 10 * time.Second, code: 1}
				r.runtime.plans["z"] = plan{runs: 10 * time.Second}
				r.create(test.pod)
				r.after(9 * time.Second)
				r.wantState(test.pod, test.before)
				r.after(6 * time.Second)
				r.wantState(test.pod, test.during)
				r.restart(0)
				r.after(12 * time.Second)
				r.wantState(test.pod, test.during)
				r.after(10 * time.Second)
				r.wantState(test.pod, test.after)
			})
		})
	}
}

// debugger gives a pod an ephemeral container named s.
func debugger(pod *corev1.Pod) {
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "s", Image: "image:1"}}}
}

// A pod that goes before anybody listens to an engine that has just begun, as while its
// process waits for an API server, has a last status all the same.
func TestPodThatGoesBeforeAnybodyListens(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{lingers: time.Hour}
		pod := makePod("a")
		r.create(pod)
		r.delete(pod, 600)
		r.end()
		r.runtime.exit(r.runtime.newest("a").Id, 3)
		r.beginUnheard()
		r.after(time.Minute)
		r.wantGone(pod)
		r.listen()
		r.wantState(pod, "Failed a=Error/3")
		seen := len(r.notified)
		r.listen()
		if len(r.notified) > seen {
			t.Errorf("the pod was notified again: %v", r.notified[seen:])
		}
	})
}
