package translate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func cpu(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
}

// admitted is a remote pod as the remote cluster's admission has changed it: an image
// from its own registry, default limits, a shorter deadline and a sidecar.
func admitted(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	remote := translated(t, options(), pod)
	remote.Spec.Containers[0].Image = "mirror.example.com/api:1"
	remote.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpu("100m"), Limits: cpu("1")}
	remote.Spec.Containers = append(remote.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy:1", Resources: corev1.ResourceRequirements{Limits: cpu("2")}})
	remote.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
	return remote
}

// What the remote cluster has made of a pod stays when something else changes at
// home.
func TestUpdateLeavesWhatAdmissionChanged(t *testing.T) {
	remote := admitted(t, localPod(nil))
	change := localPod(func(pod *corev1.Pod) { pod.Labels["color"] = "blue" })
	if options().UpdateResources(change, remote) {
		t.Errorf("a change of labels resizes it: %+v", remote.Spec.Containers)
	}
	if !options().UpdateFields(change, remote) || remote.Labels["color"] != "blue" {
		t.Error("the label is not there")
	}
	if c := remote.Spec.Containers[0]; c.Image != "mirror.example.com/api:1" || c.Resources.Limits.Cpu().String() != "1" || *remote.Spec.ActiveDeadlineSeconds != 60 {
		t.Errorf("the remote cluster's own is undone: %+v", remote.Spec)
	}
	if options().UpdateFields(change, remote) {
		t.Error("what has not changed is changed")
	}
}

// What home does ask for comes, beside what the remote cluster has added.
func TestUpdateOfWhatAdmissionChanged(t *testing.T) {
	remote := admitted(t, localPod(nil))
	for _, step := range []struct {
		resources       corev1.ResourceRequirements
		requests, limit string
	}{
		{corev1.ResourceRequirements{Requests: cpu("200m")}, "200m", "1"},
		{corev1.ResourceRequirements{Requests: cpu("200m"), Limits: cpu("3")}, "200m", "3"},
		{corev1.ResourceRequirements{Limits: cpu("3")}, "0", "3"},
	} {
		change := localPod(func(pod *corev1.Pod) {
			pod.Generation = 2
			pod.Spec.Containers[0].Resources = step.resources
			pod.Spec.Containers[0].Image = "api:2"
			pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](30)
		})
		if !options().UpdateResources(change, remote) {
			t.Errorf("%+v: nothing is resized", step)
		}
		options().UpdateFields(change, remote)
		if options().UpdateResources(change, remote) {
			t.Errorf("%+v: it is resized again", step)
		}
		c := remote.Spec.Containers[0]
		if c.Resources.Requests.Cpu().String() != step.requests || c.Resources.Limits.Cpu().String() != step.limit || c.Image != "api:2" || *remote.Spec.ActiveDeadlineSeconds != 30 {
			t.Errorf("%+v: it is %+v", step, c)
		}
		if proxy := remote.Spec.Containers[1]; proxy.Image != "proxy:1" || proxy.Resources.Limits.Cpu().String() != "2" {
			t.Errorf("the sidecar is changed: %+v", proxy)
		}
	}
}

// Changes at home while no provider ran are distinguished from metadata that is never
// copied.
func TestCarried(t *testing.T) {
	o := options()
	o.Labels.Exclude = []string{"pod-template-*"}
	pod := localPod(func(pod *corev1.Pod) { pod.Generation = 3 })
	remote := translated(t, o, pod)
	pod.Generation = 4
	pod.Labels["app"], pod.Annotations["new"] = "api2", "n"
	labels, annotations := o.ObservedMetadata(pod, remote)
	if generation := GenerationOf(remote); labels["app"] != "api" || labels["pod-template-hash"] != "x" || generation != 3 {
		t.Errorf("labels %v, generation %d", labels, generation)
	}
	if _, ok := annotations["new"]; ok || annotations["note"] != "n" {
		t.Errorf("annotations %v", annotations)
	}
}

// Annotations of ours that a pod has at home, which is itself remote to another
// cluster, say nothing of the remote pod.
func TestAnnotationsOfOursDoNotGoAlong(t *testing.T) {
	remote := translated(t, options(), localPod(func(pod *corev1.Pod) {
		pod.Annotations[AnnotationRestarts] = `{"main": 7}`
		pod.Annotations[AnnotationAPIServer] = "remote"
	}))
	if _, ok := remote.Annotations[AnnotationRestarts]; ok || remote.Annotations[AnnotationAPIServer] != "remote" {
		t.Errorf("annotations %v", remote.Annotations)
	}
}

// The status at home is about the containers that the pod has there.
func TestStatusOfContainersThatHomeHasNot(t *testing.T) {
	pod := localPod(func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "look"}}}
	})
	of := func(names ...string) (all []corev1.ContainerStatus) {
		for _, name := range names {
			all = append(all, corev1.ContainerStatus{Name: name})
		}
		return all
	}
	whole := corev1.PodStatus{
		Phase:                 corev1.PodRunning,
		InitContainerStatuses: of("mesh-init", "init"), ContainerStatuses: of("proxy", "main"), EphemeralContainerStatuses: of("look", "theirs"),
	}
	s := OnlyContainersOf(whole, pod)
	for _, c := range []struct {
		statuses []corev1.ContainerStatus
		want     string
	}{{s.InitContainerStatuses, "init"}, {s.ContainerStatuses, "main"}, {s.EphemeralContainerStatuses, "look"}} {
		if len(c.statuses) != 1 || c.statuses[0].Name != c.want {
			t.Errorf("there are statuses %+v, want one of %s", c.statuses, c.want)
		}
	}
	if s.Phase != corev1.PodRunning || whole.ContainerStatuses[0].Name != "proxy" {
		t.Error("the rest, or the status that was given, is changed")
	}
}

func TestMayStartAgain(t *testing.T) {
	const (
		always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	)
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waits := corev1.ContainerState{}
	once, failing := ptr.To(corev1.ContainerRestartPolicyNever), ptr.To(corev1.ContainerRestartPolicyOnFailure)
	restartsOn42 := []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	for what, c := range map[string]struct {
		policy       corev1.RestartPolicy
		initOwn, own *corev1.ContainerRestartPolicy
		rules        []corev1.ContainerRestartRule
		init         corev1.ContainerState
		main, more   corev1.ContainerState
		want         bool
	}{
		"Always":                             {policy: always, init: ended(0), main: ended(0), more: runs, want: true},
		"Never":                              {policy: never, init: ended(1)},
		"OnFailure, all have failed":         {policy: onFailure, init: ended(1), main: ended(1), want: true},
		"OnFailure, one has completed":       {policy: onFailure, init: ended(1), more: ended(0)},
		"OnFailure, initialized":             {policy: onFailure, init: ended(0)},
		"one that runs once has completed":   {policy: always, init: ended(0), own: once, main: ended(0), more: runs},
		"one that runs once runs":            {policy: always, init: ended(0), own: once, main: runs, more: runs},
		"one that runs once waits":           {policy: always, init: ended(0), own: once, main: waits, want: true},
		"an init container that runs once":   {policy: always, initOwn: once, init: ended(0), main: runs},
		"one has completed, with OnFailure":  {policy: always, own: failing, main: ended(0)},
		"one has failed, with OnFailure":     {policy: always, own: failing, main: ended(1), want: true},
		"one is restarted with this code":    {policy: always, own: once, rules: restartsOn42, main: ended(42), want: true},
		"one is restarted with another code": {policy: always, own: once, rules: restartsOn42, main: ended(1)},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{
			RestartPolicy:  c.policy,
			InitContainers: []corev1.Container{{Name: "init", RestartPolicy: c.initOwn}},
			Containers:     []corev1.Container{{Name: "main", RestartPolicy: c.own, RestartPolicyRules: c.rules}, {Name: "more"}},
		}}
		status := &corev1.PodStatus{
			// Admission in the remote cluster has added the first one.
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "istio-init", State: ended(0)}, {Name: "init", State: c.init}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "main", State: c.main}, {Name: "more", State: c.more}},
		}
		if got := MayRestart(pod, status); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
