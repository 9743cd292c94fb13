package podspec

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var statusNow = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// Each line of testdata/status.txt is a case; its first lines say how to read
// it.
func TestStatus(t *testing.T) {
	file, err := os.Open("testdata/status.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cases := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "|")
		if len(columns) != 4 {
			t.Fatalf("%q has %d columns, want 4", line, len(columns))
		}
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		cases++
		t.Run(columns[3], func(t *testing.T) {
			pod, o := parseStatusCase(t, columns[0], columns[1])
			s := Status(pod, o, nil, statusNow)
			if got := describeStatus(&s); got != columns[2] {
				t.Errorf("%s, %s: got %q, want %q", columns[0], columns[1], got, columns[2])
			}
		})
	}
	if cases < 30 {
		t.Errorf("found only %d cases", cases)
	}
}

// describeStatus is the phase, and the conditions that are true: I(nitialized),
// C(ontainersReady), R(eady).
func describeStatus(s *corev1.PodStatus) string {
	text := string(s.Phase) + " "
	for _, c := range []struct {
		kind   corev1.PodConditionType
		letter string
	}{{corev1.PodInitialized, "I"}, {corev1.ContainersReady, "C"}, {corev1.PodReady, "R"}} {
		if found := find(s.Conditions, c.kind); found == nil {
			text += "?"
		} else if found.Status == corev1.ConditionTrue {
			text += c.letter
		}
	}
	if s.Reason != "" {
		text += " " + s.Reason
	}
	return strings.TrimSpace(text)
}

func parseStatusCase(t *testing.T, podText, state string) (*corev1.Pod, Observation) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}}
	for _, word := range strings.Fields(podText) {
		if policy, ok := strings.CutPrefix(word, "policy="); ok {
			pod.Spec.RestartPolicy = corev1.RestartPolicy(policy)
			continue
		}
		if gate, ok := strings.CutPrefix(word, "gate="); ok {
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "Gate"})
			if gate != "missing" {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "Gate", Status: corev1.ConditionStatus(gate)})
			}
			continue
		}
		kind, name, ok := strings.Cut(word, ":")
		switch {
		case !ok:
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: word})
		case kind == "init":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name})
		case kind == "side":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)})
		}
	}
	o := Observation{Statuses: map[string]corev1.ContainerStatus{}, Networked: true}
	for _, word := range strings.Fields(state) {
		switch name, what, _ := strings.Cut(word, "="); {
		case word == "-":
		case word == "ended":
			o.Ended = true
		case name == "failure":
			o.Failure = &Failure{Reason: what}
		default:
			o.Statuses[name] = parseContainerStatus(t, pod, name, what)
		}
	}
	return pod, o
}

func parseContainerStatus(t *testing.T, pod *corev1.Pod, name, what string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, Started: ptr.To(false)}
	ended := func(code string) *corev1.ContainerStateTerminated {
		n, err := strconv.Atoi(code)
		if err != nil {
			t.Fatal(err)
		}
		return &corev1.ContainerStateTerminated{ExitCode: int32(n)}
	}
	kind, code, _ := strings.Cut(what, "/")
	switch kind {
	case "ready", "unready", "starting":
		s.State.Running = &corev1.ContainerStateRunning{}
		s.Ready, s.Started = kind == "ready", ptr.To(kind != "starting")
	case "exited":
		s.State.Terminated = ended(code)
		s.Ready = code == "0" && isInit(pod, &corev1.Container{Name: name})
	case "backoff":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		s.LastTerminationState.Terminated = ended(code)
	case "waiting":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	default:
		t.Fatalf("unknown state %q", what)
	}
	return s
}

func TestConditionsKeepTheirTimes(t *testing.T) {
	pod, o := parseStatusCase(t, "a", "a=ready")
	pod.Generation = 7
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: "Foreign", Status: corev1.ConditionTrue},
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(statusNow.Add(-time.Hour))},
	}
	first := Status(pod, o, nil, statusNow)
	later := metav1.NewTime(statusNow.Add(time.Minute))
	o.Statuses["a"] = parseContainerStatus(t, pod, "a", "unready")
	second := Status(pod, o, &first, later)
	for kind, want := range map[corev1.PodConditionType]metav1.Time{
		corev1.PodInitialized:  statusNow,
		corev1.ContainersReady: later,
		corev1.PodReady:        later,
		corev1.PodScheduled:    metav1.NewTime(statusNow.Add(-time.Hour)),
	} {
		c := find(second.Conditions, kind)
		if !c.LastTransitionTime.Equal(&want) {
			t.Errorf("%s changed at %v, want %v", kind, c.LastTransitionTime, want)
		}
		if c.ObservedGeneration != 7 {
			t.Errorf("%s is of generation %d", kind, c.ObservedGeneration)
		}
	}
	if find(second.Conditions, "Foreign") != nil {
		t.Error("a condition of somebody else is claimed")
	}
	if got := find(second.Conditions, corev1.PodReady); got.Reason != ReasonContainersNotReady || got.Message != "containers with unready status: [a]" {
		t.Errorf("Ready is %+v", got)
	}
}

// The status of a pod that has a rule by which all its containers are started again says whether
// they are (KEP-5532). Those of others have no such condition.
func TestAllContainersRestarting(t *testing.T) {
	for _, tc := range []struct {
		rule       corev1.ContainerRestartRuleAction
		state      string
		restarting bool
		want       string
	}{
		{"", "a=ready", false, ""},
		{corev1.ContainerRestartRuleActionRestart, "a=ready", false, ""},
		{corev1.ContainerRestartRuleActionRestartAllContainers, "-", false, "False "},
		{corev1.ContainerRestartRuleActionRestartAllContainers, "a=ready", false, "False "},
		{corev1.ContainerRestartRuleActionRestartAllContainers, "a=exited/42", true, "True RestartAllContainersStarted"},
		{corev1.ContainerRestartRuleActionRestartAllContainers, "a=exited/0 ended", false, "False PodCompleted"},
		{corev1.ContainerRestartRuleActionRestartAllContainers, "a=exited/1 ended", true, "False PodFailed"},
	} {
		for _, kind := range []string{"a", "init:a"} {
			pod, o := parseStatusCase(t, kind+" b policy=Never", tc.state)
			if o.Ended {
				o.Statuses["b"] = parseContainerStatus(t, pod, "b", "exited/0")
			}
			o.Restarting = tc.restarting
			c := &pod.Spec.Containers[0]
			if kind != "a" {
				c = &pod.Spec.InitContainers[0]
			}
			if tc.rule != "" {
				c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: tc.rule, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
					Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
				}}}
			}
			s := Status(pod, o, nil, statusNow)
			got := ""
			if found := find(s.Conditions, corev1.AllContainersRestarting); found != nil {
				got = string(found.Status) + " " + found.Reason
			}
			if got != tc.want {
				t.Errorf("%s of %s: the condition is %q, want %q", tc.state, kind, got, tc.want)
			}
		}
	}
}

// As in a kubelet there is one address of each family, that of the node's first one first: the API
// refuses more, and with them each later status.
func TestAddresses(t *testing.T) {
	pod, o := parseStatusCase(t, "a", "a=ready")
	o.PodIPs = []string{"10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"}
	o.HostIPs = []string{"fd00::9", "fd00::8", "192.0.2.1"}
	s := Status(pod, o, nil, statusNow)
	if want := []corev1.PodIP{{IP: "fd00::1"}, {IP: "10.0.0.1"}}; s.PodIP != "fd00::1" || !slices.Equal(s.PodIPs, want) {
		t.Errorf("the pod's addresses are %q and %v", s.PodIP, s.PodIPs)
	}
	if want := []corev1.HostIP{{IP: "fd00::9"}, {IP: "192.0.2.1"}}; s.HostIP != "fd00::9" || !slices.Equal(s.HostIPs, want) {
		t.Errorf("the host's addresses are %q and %v", s.HostIP, s.HostIPs)
	}
}

// A container whose policy, or a rule of it, differs from the pod's goes by its
// own (KEP-5307).
func TestShouldRestart(t *testing.T) {
	on := func(operator corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes},
		}}
	}
	for _, c := range []struct {
		pod   corev1.RestartPolicy
		own   *corev1.ContainerRestartPolicy
		rules []corev1.ContainerRestartRule
		code  int32
		want  bool
	}{
		{corev1.RestartPolicyAlways, nil, nil, 0, true},
		{corev1.RestartPolicyOnFailure, nil, nil, 0, false},
		{corev1.RestartPolicyOnFailure, nil, nil, 1, true},
		{corev1.RestartPolicyNever, nil, nil, 1, false},
		{corev1.RestartPolicyNever, ptr.To(corev1.ContainerRestartPolicyAlways), nil, 0, true},
		{corev1.RestartPolicyAlways, ptr.To(corev1.ContainerRestartPolicyNever), nil, 1, false},
		{corev1.RestartPolicyAlways, ptr.To(corev1.ContainerRestartPolicyOnFailure), nil, 0, false},
		{corev1.RestartPolicyNever, ptr.To(corev1.ContainerRestartPolicyNever), on(corev1.ContainerRestartRuleOnExitCodesOpIn, 42), 42, true},
		{corev1.RestartPolicyNever, ptr.To(corev1.ContainerRestartPolicyNever), on(corev1.ContainerRestartRuleOnExitCodesOpIn, 42), 1, false},
		{corev1.RestartPolicyNever, ptr.To(corev1.ContainerRestartPolicyNever), on(corev1.ContainerRestartRuleOnExitCodesOpNotIn, 42), 1, true},
	} {
		container := corev1.Container{Name: "a", RestartPolicy: c.own, RestartPolicyRules: c.rules}
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: c.pod, Containers: []corev1.Container{container}}}
		if got := ShouldRestart(pod, &container, c.code); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
