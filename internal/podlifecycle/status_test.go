package podlifecycle

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func at(seconds int) metav1.Time {
	return metav1.Time{Time: epoch.Add(time.Duration(seconds) * time.Second)}
}

func merged(current, reported corev1.PodStatus, generation int64, hostIPs ...string) corev1.PodStatus {
	return mergeStatus(&corev1.Pod{Status: current}, &reported, generation, hostIPs, epoch)
}

func TestMergePhase(t *testing.T) {
	for _, tc := range []struct{ current, reported, want corev1.PodPhase }{
		{"", "", ""},
		{"", corev1.PodPending, corev1.PodPending},
		{corev1.PodPending, corev1.PodPending, corev1.PodPending},
		{corev1.PodPending, corev1.PodRunning, corev1.PodRunning},
		{corev1.PodPending, corev1.PodFailed, corev1.PodFailed},
		{corev1.PodPending, "", corev1.PodPending},
		{corev1.PodRunning, corev1.PodPending, corev1.PodRunning}, // never backwards
		{corev1.PodRunning, "", corev1.PodRunning},
		{corev1.PodRunning, corev1.PodSucceeded, corev1.PodSucceeded},
		{corev1.PodRunning, corev1.PodUnknown, corev1.PodUnknown},
		{corev1.PodSucceeded, corev1.PodRunning, corev1.PodSucceeded}, // final
		{corev1.PodSucceeded, corev1.PodFailed, corev1.PodSucceeded},
		{corev1.PodFailed, corev1.PodSucceeded, corev1.PodFailed},
		{corev1.PodFailed, corev1.PodPending, corev1.PodFailed},
		{corev1.PodFailed, "", corev1.PodFailed},
	} {
		got := merged(corev1.PodStatus{Phase: tc.current}, corev1.PodStatus{Phase: tc.reported}, 0).Phase
		if got != tc.want {
			t.Errorf("%q, then %q: got %q, want %q", tc.current, tc.reported, got, tc.want)
		}
	}
}

// A pod that has ended is not ready, whether its provider reports that it is, or nothing.
func TestEndedPodIsNotReady(t *testing.T) {
	ready := []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: at(-60)}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at(-60)}}
	for phase, reason := range map[corev1.PodPhase]string{corev1.PodSucceeded: "PodCompleted", corev1.PodFailed: "PodFailed"} {
		for name, reported := range map[string][]corev1.PodCondition{"nothing": nil, "that it is": ready} {
			current := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready}
			status := merged(current, corev1.PodStatus{Phase: phase, Conditions: reported}, 0)
			for _, c := range status.Conditions {
				want(t, "with "+name+" "+string(c.Type), []string{string(c.Status), c.Reason}, []string{"False", reason})
				want(t, "with "+name+" since", c.LastTransitionTime, metav1.Time{Time: epoch})
			}
			want(t, "conditions", len(status.Conditions), 2)
			want(t, "the same report again", merged(status, corev1.PodStatus{Phase: phase, Conditions: reported}, 0), status)
		}
		status := merged(corev1.PodStatus{}, corev1.PodStatus{Phase: phase}, 0)
		want(t, "conditions of a pod that was never ready", len(status.Conditions), 0)
	}
}

// The containers of a pod that has ended are not restarting, regardless of who ended it.
func TestEndedPodIsNotRestarting(t *testing.T) {
	restarting := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue, LastTransitionTime: at(-60)}
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{restarting}}}
	for name, reported := range map[string]*corev1.PodStatus{
		"reported without": {Phase: corev1.PodFailed},
		"reported with":    {Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{restarting}},
		"lost":             lost(pod, nil, epoch),
		"killed":           killed(pod, nil, epoch),
	} {
		c := mergeStatus(pod, reported, 0, nil, epoch).Conditions[0]
		want(t, name, []string{string(c.Type), string(c.Status), c.Reason}, []string{"AllContainersRestarting", "False", "PodFailed"})
	}
}

func TestTerminalStatusStaysWhole(t *testing.T) {
	current := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "too much", PodIP: "10.0.0.1"}
	want(t, "status", merged(current, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.2"}, 3), current)
	late := merged(current, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Error", ContainerStatuses: []corev1.ContainerStatus{{Name: "a"}}}, 0)
	want(t, "reason of a later word on the same end", late.Reason, "Error")
	want(t, "containers of a later word on the same end", len(late.ContainerStatuses), 1)
}

func TestMergeKeepsWhatIsNotTheProviders(t *testing.T) {
	start := at(-60)
	current := corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSGuaranteed, NominatedNodeName: "n", StartTime: &start,
		ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "c"}}, Resize: corev1.PodResizeStatusInfeasible,
		ObservedGeneration: 4,
	}
	other := at(-5)
	got := merged(current, corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort, NominatedNodeName: "m", StartTime: &other}, 2)
	want(t, "QoS class", got.QOSClass, corev1.PodQOSGuaranteed)
	want(t, "nominated node", got.NominatedNodeName, "n")
	want(t, "start time", got.StartTime, &start)
	want(t, "claims", got.ResourceClaimStatuses, current.ResourceClaimStatuses)
	want(t, "resize", got.Resize, current.Resize)
	want(t, "observed generation, never less", got.ObservedGeneration, 4)
	want(t, "observed generation, more", merged(current, corev1.PodStatus{Phase: corev1.PodRunning}, 6).ObservedGeneration, 6)

	first := merged(corev1.PodStatus{}, corev1.PodStatus{Phase: corev1.PodRunning}, 0)
	want(t, "first start time", first.StartTime.Time, epoch)
	started := merged(corev1.PodStatus{}, corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &other}, 0)
	want(t, "the provider's start time", started.StartTime, &other)
}

func TestMergeDropsWhatTheProviderNoLongerSays(t *testing.T) {
	got := merged(corev1.PodStatus{Phase: corev1.PodPending, Reason: "ProviderFailed", Message: "no quota"}, corev1.PodStatus{Phase: corev1.PodRunning}, 0)
	want(t, "reason and message", got.Reason+got.Message, "")
}

func TestMergeChangesNothingInPlace(t *testing.T) {
	current := corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}
	reported := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	was, before := current.DeepCopy(), reported.DeepCopy()
	merged(current, reported, 7, "10.1.1.1")
	want(t, "current", &current, was)
	want(t, "reported", &reported, before)
}

// The conditions of a resize are a node's alone: they go when it is done.
func TestConditionsOfAResizeGo(t *testing.T) {
	resize := func(kind corev1.PodConditionType, generation int64) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at(-60), ObservedGeneration: generation}
	}
	gate := corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue, LastTransitionTime: at(-90)}
	pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		gate, resize(corev1.PodResizePending, 2), resize(corev1.PodResizeInProgress, 1),
	}}}
	reported := &corev1.PodStatus{Conditions: []corev1.PodCondition{resize(corev1.PodResizePending, 2)}}
	got := mergeStatus(pod, reported, 3, nil, epoch)
	want(t, "conditions", got.Conditions, []corev1.PodCondition{gate, resize(corev1.PodResizePending, 2)})
	got = mergeStatus(pod, &corev1.PodStatus{}, 3, nil, epoch)
	want(t, "conditions in the end", got.Conditions, []corev1.PodCondition{gate})
}

func TestMergeConditions(t *testing.T) {
	ready := func(status corev1.ConditionStatus, transition metav1.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: transition}
	}
	gate := corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue, LastTransitionTime: at(-90), Reason: "Theirs"}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(-80), ObservedGeneration: 1}
	scheduledNow := scheduled
	scheduledNow.ObservedGeneration = 3
	for name, tc := range map[string]struct {
		current, reported, want []corev1.PodCondition
		generation              int64
	}{
		"none":                    {},
		"new gets a time":         {reported: []corev1.PodCondition{ready("True", metav1.Time{})}, want: []corev1.PodCondition{ready("True", at(0))}},
		"new keeps its time":      {reported: []corev1.PodCondition{ready("True", at(-3))}, want: []corev1.PodCondition{ready("True", at(-3))}},
		"foreign stay, and first": {current: []corev1.PodCondition{gate}, reported: []corev1.PodCondition{ready("True", at(-3))}, want: []corev1.PodCondition{gate, ready("True", at(-3))}},
		// Ready, too: a provider may report conditions in some statuses only (see node.PodLifecycleHandler).
		"nothing reported":         {current: []corev1.PodCondition{gate, ready("True", at(-3))}, want: []corev1.PodCondition{gate, ready("True", at(-3))}},
		"same status, same time":   {current: []corev1.PodCondition{ready("True", at(-60))}, reported: []corev1.PodCondition{ready("True", at(-3))}, want: []corev1.PodCondition{ready("True", at(-60))}},
		"other status, its time":   {current: []corev1.PodCondition{ready("True", at(-60))}, reported: []corev1.PodCondition{ready("False", at(-3))}, want: []corev1.PodCondition{ready("False", at(-3))}},
		"other status, no time":    {current: []corev1.PodCondition{ready("True", at(-60))}, reported: []corev1.PodCondition{ready("False", metav1.Time{})}, want: []corev1.PodCondition{ready("False", at(0))}},
		"other status, stale time": {current: []corev1.PodCondition{ready("True", at(-60))}, reported: []corev1.PodCondition{ready("False", at(-70))}, want: []corev1.PodCondition{ready("False", at(0))}},
		// As a kubelet does, the node says that it holds for the newest form of the pod.
		"scheduled is the scheduler's, but for the generation": {
			current: []corev1.PodCondition{scheduled}, reported: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "Mine"}},
			generation: 3, want: []corev1.PodCondition{scheduledNow},
		},
		"generation": {
			reported: []corev1.PodCondition{ready("True", at(-3))}, generation: 3,
			want: []corev1.PodCondition{{Type: corev1.PodReady, Status: "True", LastTransitionTime: at(-3), ObservedGeneration: 3}},
		},
		"generation never less": {
			current:  []corev1.PodCondition{{Type: corev1.PodReady, Status: "True", LastTransitionTime: at(-3), ObservedGeneration: 5}},
			reported: []corev1.PodCondition{ready("True", at(-3))}, generation: 3,
			want: []corev1.PodCondition{{Type: corev1.PodReady, Status: "True", LastTransitionTime: at(-3), ObservedGeneration: 5}},
		},
		"a probe that finds the same is no news": {
			current:  []corev1.PodCondition{{Type: corev1.PodReady, Status: "True", LastTransitionTime: at(-60), LastProbeTime: at(-60)}},
			reported: []corev1.PodCondition{{Type: corev1.PodReady, Status: "True", LastTransitionTime: at(-60), LastProbeTime: at(-1)}},
			want:     []corev1.PodCondition{{Type: corev1.PodReady, Status: "True", LastTransitionTime: at(-60), LastProbeTime: at(-60)}},
		},
		"a probe that finds another reason is": {
			current:  []corev1.PodCondition{{Type: corev1.PodReady, Status: "False", LastTransitionTime: at(-60), LastProbeTime: at(-60), Reason: "A"}},
			reported: []corev1.PodCondition{{Type: corev1.PodReady, Status: "False", LastTransitionTime: at(-1), LastProbeTime: at(-1), Reason: "B"}},
			want:     []corev1.PodCondition{{Type: corev1.PodReady, Status: "False", LastTransitionTime: at(-60), LastProbeTime: at(-1), Reason: "B"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, "conditions", mergeConditions(tc.current, tc.reported, tc.generation, epoch), tc.want)
		})
	}
}

func TestMergeAddresses(t *testing.T) {
	ips := func(ips ...string) (list []corev1.PodIP) {
		for _, ip := range ips {
			list = append(list, corev1.PodIP{IP: ip})
		}
		return list
	}
	hosts := func(ips ...string) (list []corev1.HostIP) {
		for _, ip := range ips {
			list = append(list, corev1.HostIP{IP: ip})
		}
		return list
	}
	for name, tc := range map[string]struct {
		current, reported, want corev1.PodStatus
		host                    []string
	}{
		"nothing known": {},
		"singular":      {reported: corev1.PodStatus{PodIP: "10.0.0.1", HostIP: "192.0.2.9"}, want: corev1.PodStatus{PodIP: "10.0.0.1", PodIPs: ips("10.0.0.1"), HostIP: "192.0.2.9", HostIPs: hosts("192.0.2.9")}},
		"plural":        {reported: corev1.PodStatus{PodIPs: ips("10.0.0.1", "fd00::1"), HostIPs: hosts("192.0.2.9", "fd00::8")}, want: corev1.PodStatus{PodIP: "10.0.0.1", PodIPs: ips("10.0.0.1", "fd00::1"), HostIP: "192.0.2.9", HostIPs: hosts("192.0.2.9", "fd00::8")}},
		"contradiction": {reported: corev1.PodStatus{PodIP: "10.0.0.3", PodIPs: ips("10.0.0.1", "fd00::1")}, want: corev1.PodStatus{PodIP: "10.0.0.3", PodIPs: ips("10.0.0.3")}},
		"the node's":    {host: []string{"192.0.2.9", "fd00::8"}, want: corev1.PodStatus{HostIP: "192.0.2.9", HostIPs: hosts("192.0.2.9", "fd00::8")}},
		// The API refuses more than one address of a family.
		"several of a family": {
			reported: corev1.PodStatus{PodIPs: ips("10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"), HostIPs: hosts("192.0.2.9", "192.0.2.8")},
			want:     corev1.PodStatus{PodIP: "10.0.0.1", PodIPs: ips("10.0.0.1", "fd00::1"), HostIP: "192.0.2.9", HostIPs: hosts("192.0.2.9")},
		},
		"the node's, several of a family": {host: []string{"192.0.2.9", "192.0.2.8"}, want: corev1.PodStatus{HostIP: "192.0.2.9", HostIPs: hosts("192.0.2.9")}},
		"the provider's before the node's": {
			host: []string{"192.0.2.9"}, reported: corev1.PodStatus{HostIP: "192.0.2.7"}, want: corev1.PodStatus{HostIP: "192.0.2.7", HostIPs: hosts("192.0.2.7")},
		},
		"the host does not change": {
			host: []string{"192.0.2.9"}, current: corev1.PodStatus{HostIP: "192.0.2.7", HostIPs: hosts("192.0.2.7", "fd00::6")}, want: corev1.PodStatus{HostIP: "192.0.2.7", HostIPs: hosts("192.0.2.7", "fd00::6")},
		},
		"a new pod address": {
			current: corev1.PodStatus{PodIP: "10.0.0.1", PodIPs: ips("10.0.0.1")}, reported: corev1.PodStatus{PodIP: "10.0.0.2"}, want: corev1.PodStatus{PodIP: "10.0.0.2", PodIPs: ips("10.0.0.2")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := merged(tc.current, tc.reported, 0, tc.host...)
			want(t, "pod IP", got.PodIP, tc.want.PodIP)
			want(t, "pod IPs", got.PodIPs, tc.want.PodIPs)
			want(t, "host IP", got.HostIP, tc.want.HostIP)
			want(t, "host IPs", got.HostIPs, tc.want.HostIPs)
		})
	}
}

func TestFailedCreate(t *testing.T) {
	pod := aPod("web")
	pod.Status.ContainerStatuses = waitingForConfig(pod, errors.New("no map")).ContainerStatuses
	for _, tc := range []struct {
		policy corev1.RestartPolicy
		err    error
		want   corev1.PodPhase
	}{
		{corev1.RestartPolicyAlways, errors.New("x"), corev1.PodPending},
		{corev1.RestartPolicyNever, errors.New("x"), corev1.PodPending},
		{corev1.RestartPolicyNever, errdefs.InvalidInput("x"), corev1.PodPending},
		{corev1.RestartPolicyAlways, errdefs.AsPermanent(errors.New("x")), corev1.PodFailed},
		{corev1.RestartPolicyOnFailure, errdefs.AsPermanent(errors.New("x")), corev1.PodFailed},
		{corev1.RestartPolicyNever, errdefs.AsPermanent(errors.New("x")), corev1.PodFailed},
	} {
		pod.Spec.RestartPolicy = tc.policy
		got := failedCreate(pod, tc.err)
		if got.Phase != tc.want || got.Reason != "ProviderFailed" || got.Message != "x" || got.ContainerStatuses != nil {
			t.Errorf("%s, %v: got %+v, want phase %s", tc.policy, tc.err, got, tc.want)
		}
	}
}

func TestWaitingForConfig(t *testing.T) {
	pod := aPod("web")
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Reason: "ProviderFailed", Message: "no quota"}
	got := waitingForConfig(pod, errors.New("no map"))
	want(t, "phase", got.Phase, corev1.PodPending)
	want(t, "reason and message", got.Reason+got.Message, "")
	waiting := got.ContainerStatuses[0].State.Waiting
	want(t, "waiting", *waiting, corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: "no map"})
}

// What a provider has shown of a pod that was created before stays until it is created again, or fails, but that
// its containers run: the provider may know by it what it has created, and the next process that the pod was created.
func TestPodThatWasCreatedBeforeCannotBeCreated(t *testing.T) {
	start, started := at(-60), true
	pod := aPod("web")
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: "(unit 1)"}}},
		{Name: "ran", State: running, ContainerID: "x://1", Ready: true, Started: &started},
		{Name: "ended", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "x://2"}}, ContainerID: "x://2"},
	}, InitContainerStatuses: []corev1.ContainerStatus{{Name: "sidecar", State: running, Ready: true, Started: &started}}}
	noQuota := func(pod *corev1.Pod) *corev1.PodStatus { return failedCreate(pod, errors.New("no quota")) }
	noMap := func(pod *corev1.Pod) *corev1.PodStatus { return waitingForConfig(pod, errors.New("no map")) }
	for _, status := range []func(*corev1.Pod) *corev1.PodStatus{noQuota, noMap, noMap, noQuota, noQuota} {
		pod = &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec, Status: *status(pod)}
		want(t, "created before", createdBefore(pod), true)
		want(t, "says why it is not created", explainsFailure(&pod.Status) && pod.Status.Message != "", true)
		containers := pod.Status.ContainerStatuses
		want(t, "containers", len(containers), 3)
		reason := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: pod.Status.Reason}}
		want(t, "what ran", containers[1], corev1.ContainerStatus{Name: "ran", State: reason, ContainerID: "x://1", Started: new(bool)})
		want(t, "a sidecar", pod.Status.InitContainerStatuses[0], corev1.ContainerStatus{Name: "sidecar", State: reason, Started: new(bool)})
		want(t, "what has ended stays, as the API requires", containers[2].State.Terminated != nil, true)
		want(t, "waiting", *pod.Status.ContainerStatuses[0].State.Waiting, corev1.ContainerStateWaiting{Reason: pod.Status.Reason, Message: "(unit 1)"})
	}
	want(t, "containers once it has failed", len(failedCreate(pod, errdefs.AsPermanent(errors.New("gone"))).ContainerStatuses), 0)
}

// Whether a process before this one has had a pod created.
func TestCreatedBefore(t *testing.T) {
	start := at(-60)
	waits := func(reason string, change ...func(*corev1.ContainerStatus)) corev1.ContainerStatus {
		c := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
		for _, f := range change {
			f(&c)
		}
		return c
	}
	own := waits(reasonConfigError)
	for name, tc := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"no start time":                  {corev1.PodStatus{Phase: corev1.PodPending}, false},
		"no start time, but a reason":    {corev1.PodStatus{Phase: corev1.PodPending, Reason: "Queued"}, false},
		"start time":                     {corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start}, true},
		"has ended":                      {corev1.PodStatus{Phase: corev1.PodFailed, StartTime: &start}, true},
		"could not be created":           {*failedCreate(&corev1.Pod{Status: corev1.PodStatus{StartTime: &start}}, errors.New("no quota")), false},
		"waits for its configuration":    {*waitingForConfig(&corev1.Pod{Spec: aPod("web").Spec, Status: corev1.PodStatus{StartTime: &start}}, errors.New("no map")), false},
		"a reason of the provider":       {corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, Reason: "Queued"}, true},
		"that is ours, with containers":  {corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, Reason: "ProviderFailed", ContainerStatuses: []corev1.ContainerStatus{waits("")}}, true},
		"one container cannot start":     {corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, ContainerStatuses: []corev1.ContainerStatus{own, waits("ContainerCreating")}}, true},
		"a container that has its image": {corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, ContainerStatuses: []corev1.ContainerStatus{waits(reasonConfigError, func(c *corev1.ContainerStatus) { c.ImageID = "sha256:1" })}}, true},
		"a container that was there":     {corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, ContainerStatuses: []corev1.ContainerStatus{waits(reasonConfigError, func(c *corev1.ContainerStatus) { c.ContainerID = "x://1" })}}, true},
		"a container of a kubelet":       {corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, ContainerStatuses: []corev1.ContainerStatus{waits(reasonConfigError, func(c *corev1.ContainerStatus) { c.Started = new(bool) })}}, true},
	} {
		want(t, name, createdBefore(&corev1.Pod{Status: tc.status}), tc.want)
	}
}

func withContainers(phase corev1.PodPhase, states ...corev1.ContainerState) *corev1.PodStatus {
	status := &corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
	}}
	for _, s := range states {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{Ready: true, State: s})
	}
	return status
}

func exited(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
}

var running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(-30)}}

// A deleted pod whose provider does not say how it ended.
func TestKilled(t *testing.T) {
	for name, tc := range map[string]struct {
		latest *corev1.PodStatus
		want   corev1.PodPhase
		codes  []int32
	}{
		"ran":                     {withContainers(corev1.PodRunning, running), corev1.PodFailed, []int32{137}},
		"ran, one had ended well": {withContainers(corev1.PodRunning, exited(0), running), corev1.PodFailed, []int32{0, 137}},
		"ended badly":             {withContainers(corev1.PodRunning, exited(0), exited(2)), corev1.PodFailed, []int32{0, 2}},
		"ended well":              {withContainers(corev1.PodRunning, exited(0), exited(0)), corev1.PodSucceeded, []int32{0, 0}},
		"had succeeded":           {withContainers(corev1.PodSucceeded, exited(0)), corev1.PodSucceeded, []int32{0}},
		"had failed":              {withContainers(corev1.PodFailed, exited(1)), corev1.PodFailed, []int32{1}},
		"never started":           {withContainers(corev1.PodPending, corev1.ContainerState{}), corev1.PodFailed, []int32{137}},
		"nothing known":           {nil, corev1.PodFailed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.latest.DeepCopy()
			got := killed(aPod("web"), tc.latest, epoch)
			want(t, "phase", got.Phase, tc.want)
			var codes []int32
			for _, c := range got.ContainerStatuses {
				codes = append(codes, c.State.Terminated.ExitCode)
			}
			want(t, "exit codes", codes, tc.codes)
			if tc.latest != nil && !isTerminal(tc.latest.Phase) {
				reason := map[corev1.PodPhase]string{corev1.PodFailed: "PodFailed", corev1.PodSucceeded: "PodCompleted"}[tc.want]
				want(t, "Ready is", string(got.Conditions[0].Status)+" "+got.Conditions[0].Reason, "False "+reason)
			}
			want(t, "the report is", tc.latest, before)
		})
	}
}

func TestLost(t *testing.T) {
	latest := withContainers(corev1.PodRunning, running, exited(0))
	got := lost(aPod("web"), latest, epoch)
	want(t, "phase, reason", []string{string(got.Phase), got.Reason}, []string{"Failed", "NotFound"})
	first := got.ContainerStatuses[0]
	want(t, "ready", first.Ready, false)
	want(t, "exit code", first.State.Terminated.ExitCode, 137)
	want(t, "started at", first.State.Terminated.StartedAt, at(-30))
	want(t, "the other's exit code", got.ContainerStatuses[1].State.Terminated.ExitCode, 0)
	want(t, "Ready condition", got.Conditions[0].Status, corev1.ConditionFalse)
	want(t, "Initialized condition", got.Conditions[1].Status, corev1.ConditionTrue)
	want(t, "the report's phase", latest.Phase, corev1.PodRunning)
}

// A pod is ready once the provider says so and its gates, which are others'
// conditions, are open, also if the provider goes by an old form of the pod.
func TestReadinessGates(t *testing.T) {
	gate := func(status corev1.ConditionStatus) []corev1.PodCondition {
		if status == "" {
			return nil
		}
		return []corev1.PodCondition{{Type: "Gate", Status: status}}
	}
	ready := func(status corev1.ConditionStatus, reason string) corev1.PodStatus {
		return corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status, Reason: reason, LastTransitionTime: at(-5)}}}
	}
	for _, tc := range []struct {
		gate     corev1.ConditionStatus
		reported corev1.PodStatus
		want     corev1.ConditionStatus
		reason   string
	}{
		{"", ready(corev1.ConditionTrue, ""), corev1.ConditionFalse, "ReadinessGatesNotReady"},
		{corev1.ConditionFalse, ready(corev1.ConditionTrue, ""), corev1.ConditionFalse, "ReadinessGatesNotReady"},
		{corev1.ConditionTrue, ready(corev1.ConditionTrue, ""), corev1.ConditionTrue, ""},
		{corev1.ConditionTrue, ready(corev1.ConditionFalse, "ReadinessGatesNotReady"), corev1.ConditionTrue, ""},
		{corev1.ConditionTrue, ready(corev1.ConditionFalse, "ContainersNotReady"), corev1.ConditionFalse, "ContainersNotReady"},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: gate(tc.gate)}}
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "Gate"}}
		before := *tc.reported.DeepCopy()
		got := mergeStatus(pod, &tc.reported, 0, nil, epoch)
		c := got.Conditions[len(got.Conditions)-1]
		want(t, "status with gate "+string(tc.gate), c.Status, tc.want)
		want(t, "reason with gate "+string(tc.gate), c.Reason, tc.reason)
		want(t, "the provider's word", tc.reported, before)
		if c.LastTransitionTime.IsZero() {
			t.Error("no time of the transition")
		}
	}
}
