package podspec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

// The reasons of conditions, as a kubelet gives them.
const (
	ReasonContainersNotInitialized = "ContainersNotInitialized"
	ReasonContainersNotReady       = "ContainersNotReady"
	ReasonUnknownContainerStatuses = "UnknownContainerStatuses"
	ReasonReadinessGatesNotReady   = "ReadinessGatesNotReady"
	ReasonPodCompleted             = "PodCompleted"
	ReasonPodFailed                = "PodFailed"

	// ReasonRestartAllContainersStarted is that of AllContainersRestarting, and
	// ReasonRestartingAllContainers that of containers which wait for it or were
	// ended by it.
	ReasonRestartAllContainersStarted = "RestartAllContainersStarted"
	ReasonRestartingAllContainers     = "RestartingAllContainers"
)

// Observation is what is known of a pod that runs, or is to run, on a node.
type Observation struct {
	// Statuses are those of the pod's containers of all kinds, by name. Their
	// Ready and Started are what probes and hooks say; a container without
	// them is ready, and has started, when it runs: see ContainerStatus.
	Statuses map[string]corev1.ContainerStatus

	// Networked reports whether the pod has its sandbox and its addresses.
	Networked bool
	// PodIPs and HostIPs are the addresses, the primary one first. The status has the first one
	// of each family; of the pod's, that of the host's primary family comes first.
	PodIPs, HostIPs []string

	// StartTime is when the node took the pod.
	StartTime metav1.Time

	// ResizePending is a change of resources that the node has not taken, and
	// ResizeInProgress one that it has and that is not done in all containers
	// yet (KEP-1287). Nil means that there is none.
	ResizePending, ResizeInProgress *Resize

	// Restarting is set while all containers are ended to be started again by a
	// restart rule of one of them (KEP-5532). The condition AllContainersRestarting is True
	// then, unless the pod has ended, and otherwise False in pods that have such a rule.
	Restarting bool

	// Ended means that nothing of the pod runs any more, and nothing will: its
	// containers are not started again, regardless of the restart policy.
	Ended bool
	// Failure is why the node itself ended the pod, such as that it was active
	// longer than its deadline. It makes the phase Failed once the pod has
	// ended.
	Failure *Failure
}

// Resize is what the condition of a resize says.
type Resize struct {
	// Reason is PodReasonDeferred or PodReasonInfeasible of one that is pending,
	// and PodReasonError, or empty, of one in progress.
	Reason, Message string
	// Generation is the pod's that asked for it. Defaults to the pod's.
	Generation int64
}

// Failure is a reason of a whole pod, as in PodStatus.
type Failure struct {
	Reason, Message string
	// Disrupted is set if the pod was ended for want of something on the node, and
	// not for what it did: its condition DisruptionTarget says so then.
	Disrupted bool
	// Rejected is set if the node has not taken the pod: the status says so before
	// the message, and has no containers.
	Rejected bool
}

// Status makes the status of a pod from what is known of its containers, by the
// kubelet's rules: phase, conditions, addresses, and a status for each container
// of the spec in its order. The termination messages are cut to 12 KiB, divided
// evenly among all containers. Conditions take the time of their last transition
// from before, the status that was made last; now is the time of new ones. Those
// that other owners write are left out.
//
// See https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/.
func Status(pod *corev1.Pod, o Observation, before *corev1.PodStatus, now metav1.Time) corev1.PodStatus {
	s := corev1.PodStatus{
		ObservedGeneration:         pod.Generation,
		StartTime:                  &o.StartTime,
		QOSClass:                   pod.Status.QOSClass,
		InitContainerStatuses:      inOrder(pod.Spec.InitContainers, o.Statuses),
		ContainerStatuses:          inOrder(pod.Spec.Containers, o.Statuses),
		EphemeralContainerStatuses: ephemeralInOrder(pod, o.Statuses),
	}
	limitMessages(&s)
	if o.StartTime.IsZero() {
		s.StartTime = nil
	}
	s.HostIPs, s.HostIP = ips(podstatus.SortAddresses(o.HostIPs, nil), func(ip string) corev1.HostIP { return corev1.HostIP{IP: ip} })
	s.PodIPs, s.PodIP = ips(podstatus.SortAddresses(o.PodIPs, o.HostIPs), func(ip string) corev1.PodIP { return corev1.PodIP{IP: ip} })
	s.Phase = phase(pod, &s, o.Ended)
	if o.Failure != nil && (o.Ended || s.Phase == corev1.PodFailed) {
		s.Phase = corev1.PodFailed
		s.Reason, s.Message = o.Failure.Reason, o.Failure.Message
	}
	s.Conditions = conditions(pod, &s, o, before, now)
	switch {
	case !o.Ended:
	case o.Failure != nil && o.Failure.Rejected:
		s.Message = "Pod was rejected: " + s.Message
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses = nil, nil, nil
	default:
		endWaiting(pod, &s)
	}
	return s
}

func ips[T any](all []string, as func(string) T) (list []T, first string) {
	for _, ip := range all {
		list = append(list, as(ip))
	}
	if len(all) > 0 {
		first = all[0]
	}
	return list, first
}

// inOrder returns the statuses of containers, in the order of the spec. One that
// nothing is known of yet waits.
func inOrder(containers []corev1.Container, known map[string]corev1.ContainerStatus) []corev1.ContainerStatus {
	var ordered []corev1.ContainerStatus
	for i := range containers {
		ordered = append(ordered, statusOf(containers[i].Name, containers[i].Image, known))
	}
	return ordered
}

func ephemeralInOrder(pod *corev1.Pod, known map[string]corev1.ContainerStatus) []corev1.ContainerStatus {
	var ordered []corev1.ContainerStatus
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		ordered = append(ordered, statusOf(c.Name, c.Image, known))
	}
	return ordered
}

func statusOf(name, image string, known map[string]corev1.ContainerStatus) corev1.ContainerStatus {
	if status, ok := known[name]; ok {
		return status
	}
	return corev1.ContainerStatus{
		Name:    name,
		Image:   image,
		Started: new(bool),
		State:   corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}
}

// IsSidecar reports whether an init container is a restartable one (KEP-753).
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// tally counts containers by what they are at.
type tally struct {
	waiting, running, succeeded, failed int
	restarting                          int // of those that have ended
}

// phase follows from the statuses. As with a kubelet it is final only once nothing of
// the pod runs any more: a controller starts a replacement then.
func phase(pod *corev1.Pod, s *corev1.PodStatus, ended bool) corev1.PodPhase {
	initialized := Initialized(pod, s)
	for i := range pod.Spec.InitContainers {
		c, status := &pod.Spec.InitContainers[i], &s.InitContainerStatuses[i]
		if status.State.Waiting != nil {
			continue // it is to be started, however it ended before
		}
		exit := lastExit(status)
		if !IsSidecar(c) && exit != nil && exit.ExitCode != 0 && !ShouldRestart(pod, c, exit.ExitCode) && (ended || !anyRuns(s)) {
			return corev1.PodFailed
		}
	}
	if !initialized && !ended {
		return corev1.PodPending
	}
	var t tally
	for i := range pod.Spec.Containers {
		t.add(pod, &pod.Spec.Containers[i], &s.ContainerStatuses[i])
	}
	switch {
	case ended && t.running == 0:
		if t.failed+t.waiting > 0 || !initialized {
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	case t.waiting > 0:
		return corev1.PodPending
	case t.restarting > 0, anyRuns(s):
		return corev1.PodRunning
	case t.failed > 0:
		return corev1.PodFailed
	case t.succeeded > 0:
		return corev1.PodSucceeded
	default: // no container is known
		return corev1.PodPending
	}
}

// anyRuns reports whether a container of any kind runs.
func anyRuns(s *corev1.PodStatus) bool {
	for c := range podstatus.Containers(s) {
		if c.State.Running != nil {
			return true
		}
	}
	return false
}

func (t *tally) add(pod *corev1.Pod, c *corev1.Container, s *corev1.ContainerStatus) {
	exit := lastExit(s)
	switch {
	case s.State.Running != nil:
		t.running++
		return
	case exit == nil:
		t.waiting++ // for the first time
		return
	case exit.ExitCode == 0:
		t.succeeded++
	default:
		t.failed++
	}
	if s.State.Waiting != nil || ShouldRestart(pod, c, exit.ExitCode) {
		t.restarting++
	}
}

// lastExit is how a container that does not run ended; nil if it has not run.
func lastExit(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Running == nil:
		return s.LastTerminationState.Terminated
	default:
		return nil
	}
}

// ShouldRestart reports whether a container of the pod that has ended with an exit
// code is to be started again, by the pod's restart policy, or the container's
// own and its rules (KEP-5307). Ephemeral containers never are.
func ShouldRestart(pod *corev1.Pod, c *corev1.Container, exitCode int32) bool {
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		if rule.ExitCodes == nil || !matches(rule.ExitCodes, exitCode) {
			continue
		}
		return rule.Action == corev1.ContainerRestartRuleActionRestart || rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	}
	policy := string(pod.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	} else if isInit(pod, c) && policy == string(corev1.RestartPolicyAlways) {
		policy = string(corev1.RestartPolicyOnFailure) // an init container that succeeded is done
	}
	switch policy {
	case string(corev1.RestartPolicyNever):
		return false
	case string(corev1.RestartPolicyOnFailure):
		return exitCode != 0
	default:
		return true
	}
}

// RestartsAll reports whether the end of a container with an exit code has all
// containers of its pod started again, init containers too, by a rule of the
// container (KEP-5532).
func RestartsAll(c *corev1.Container, exitCode int32) bool {
	for i := range c.RestartPolicyRules {
		if rule := &c.RestartPolicyRules[i]; rule.ExitCodes != nil && matches(rule.ExitCodes, exitCode) {
			return rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		}
	}
	return false
}

func matches(on *corev1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	within := slices.Contains(on.Values, exitCode)
	return within == (on.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

func isInit(pod *corev1.Pod, c *corev1.Container) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
}

// Initialized reports whether the init containers have done what has to be done
// before the others start. Once one of those has run they have, also if a
// sidecar is started again since.
func Initialized(pod *corev1.Pod, s *corev1.PodStatus) bool {
	for i := range s.ContainerStatuses {
		if c := &s.ContainerStatuses[i]; c.State.Running != nil || lastExit(c) != nil {
			return true
		}
	}
	return len(uninitialized(pod, s)) == 0
}

func uninitialized(pod *corev1.Pod, s *corev1.PodStatus) (names []string) {
	for i := range pod.Spec.InitContainers {
		status := &s.InitContainerStatuses[i]
		done := status.State.Terminated != nil && status.State.Terminated.ExitCode == 0
		if IsSidecar(&pod.Spec.InitContainers[i]) {
			done = status.Started != nil && *status.Started
		}
		if !done {
			names = append(names, status.Name)
		}
	}
	return names
}

// unready returns the containers that a ready pod needs, and which are not.
func unready(pod *corev1.Pod, s *corev1.PodStatus) (names []string) {
	for i := range pod.Spec.InitContainers {
		if status := &s.InitContainerStatuses[i]; IsSidecar(&pod.Spec.InitContainers[i]) && !status.Ready {
			names = append(names, status.Name)
		}
	}
	for i := range s.ContainerStatuses {
		if status := &s.ContainerStatuses[i]; !status.Ready {
			names = append(names, status.Name)
		}
	}
	return names
}

// conditions are those that a kubelet owns.
func conditions(pod *corev1.Pod, s *corev1.PodStatus, o Observation, before *corev1.PodStatus, now metav1.Time) []corev1.PodCondition {
	ready := containersReady(pod, s)
	own := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: truth(o.Networked)},
		initializedCondition(pod, s),
		podReady(pod, ready),
		ready,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	if o.Restarting || mayRestartAll(pod) {
		own = append(own, allRestarting(s, o))
	}
	if o.Failure != nil && o.Failure.Disrupted && s.Phase == corev1.PodFailed {
		own = append(own, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonTerminationByKubelet, Message: o.Failure.Message,
		})
	}
	own = append(own, resizeConditions(o)...)
	var past []corev1.PodCondition
	if before != nil {
		past = before.Conditions
	}
	for i := range own {
		own[i].ObservedGeneration = cmp.Or(own[i].ObservedGeneration, pod.Generation)
		own[i].LastTransitionTime = now
		if was := find(past, own[i].Type); was != nil && was.Status == own[i].Status {
			own[i].LastTransitionTime = was.LastTransitionTime
		} else if own[i].Type == corev1.PodScheduled {
			if was := find(pod.Status.Conditions, corev1.PodScheduled); was != nil && was.Status == corev1.ConditionTrue {
				own[i].LastTransitionTime = was.LastTransitionTime // by the scheduler
			}
		}
	}
	return own
}

// mayRestartAll reports whether a container has a rule by which all are started again.
func mayRestartAll(pod *corev1.Pod) bool {
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, rule := range containers[i].RestartPolicyRules {
				if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

// allRestarting is False again once the containers run: the API keeps what is left out.
func allRestarting(s *corev1.PodStatus, o Observation) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse}
	switch {
	case s.Phase == corev1.PodSucceeded:
		c.Reason = ReasonPodCompleted
	case s.Phase == corev1.PodFailed:
		c.Reason = ReasonPodFailed
	case o.Restarting:
		c.Status = corev1.ConditionTrue
		c.Reason, c.Message = ReasonRestartAllContainersStarted, "container exited with restart policy rule"
	}
	return c
}

// resizeConditions are there as long as what they describe.
func resizeConditions(o Observation) (all []corev1.PodCondition) {
	add := func(kind corev1.PodConditionType, r *Resize) {
		if r != nil {
			all = append(all, corev1.PodCondition{
				Type: kind, Status: corev1.ConditionTrue, Reason: r.Reason, Message: r.Message, ObservedGeneration: r.Generation,
			})
		}
	}
	add(corev1.PodResizePending, o.ResizePending)
	add(corev1.PodResizeInProgress, o.ResizeInProgress)
	return all
}

func find(conditions []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func initializedCondition(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	switch {
	case s.Phase == corev1.PodSucceeded:
		c.Reason = ReasonPodCompleted
	case !Initialized(pod, s):
		c.Status = corev1.ConditionFalse
		c.Reason = ReasonContainersNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: %s", list(uninitialized(pod, s)))
	}
	return c
}

func containersReady(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	lacking := unready(pod, s)
	switch {
	case s.Phase == corev1.PodSucceeded:
		c.Reason = ReasonPodCompleted
	case s.Phase == corev1.PodFailed:
		c.Reason = ReasonPodFailed
	case len(lacking) > 0:
		c.Reason = ReasonContainersNotReady
		c.Message = fmt.Sprintf("containers with unready status: %s", list(lacking))
	default:
		c.Status = corev1.ConditionTrue
	}
	return c
}

// podReady adds the readiness gates (KEP-580).
func podReady(pod *corev1.Pod, containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var missing []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch condition := find(pod.Status.Conditions, gate.ConditionType); {
		case condition == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case condition.Status != corev1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, condition.Status))
		}
	}
	if len(missing) > 0 {
		c.Status = corev1.ConditionFalse
		c.Reason = ReasonReadinessGatesNotReady
		c.Message = strings.Join(missing, ", ")
	}
	return c
}

// list writes names as a kubelet does.
func list(names []string) string { return "[" + strings.Join(names, " ") + "]" }
