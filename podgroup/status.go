package podgroup

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// statusMaker makes statuses of pods. It is immutable.
type statusMaker struct {
	scheme  string // of the IDs of containers
	service string // for messages
	hostIPs func() []string
}

// status returns the status of a pod from its unit, and a resize that is not made.
func (m statusMaker) status(pod *corev1.Pod, u *Unit, resize *podspec.Resize, now metav1.Time) corev1.PodStatus {
	o := podspec.Observation{
		Statuses:  map[string]corev1.ContainerStatus{},
		Networked: len(u.IPs) > 0 || u.hasStarted(), // services may not have addresses of pods
		PodIPs:    u.IPs,
		HostIPs:   u.HostIPs,
		StartTime: timeOf(u.Created),
		Ended:     u.Over(),
		Failure:   m.failure(pod, u),

		ResizePending: resize,
	}
	if len(o.HostIPs) == 0 && m.hostIPs != nil {
		o.HostIPs = m.hostIPs()
	}
	for kind, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			found := u.Container(c.Name)
			if found == nil {
				found = &Container{Name: c.Name}
			}
			s := m.container(c, u, found)
			if isInit := kind == 0 && !podspec.IsSidecar(c); isInit { // an init container is ready once it has completed
				s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
			}
			o.Statuses[c.Name] = s
		}
	}
	return podspec.Status(pod, o, &pod.Status, now)
}

// failure returns why the unit as a whole failed, if its containers do not show it.
func (m statusMaker) failure(pod *corev1.Pod, u *Unit) *podspec.Failure {
	if u.Failure != nil {
		return u.Failure
	}
	if u.Phase != Failed {
		return nil
	}
	if limit := pod.Spec.ActiveDeadlineSeconds; limit != nil && !u.Created.IsZero() && u.Ended.Sub(u.Created) >= time.Duration(*limit)*time.Second {
		return &podspec.Failure{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
	}
	if len(u.Containers) == 0 {
		return &podspec.Failure{Reason: "Failed", Message: cmp.Or(u.LastWarning(), m.service+" gives no reason")}
	}
	return nil
}

// defaultReason is the reason of a container that waits where the service gives none.
const defaultReason = "ContainerCreating"

// container returns the status of one container. Its ID is made of what identifies a run.
func (m statusMaker) container(spec *corev1.Container, u *Unit, c *Container) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: cmp.Or(c.Image, spec.Image), RestartCount: c.Restarts, Started: new(bool)}
	id := m.containerID(u, c, c.Restarts)
	if c.Now.State != Waiting {
		s.ContainerID, s.ImageID = id, cmp.Or(c.ImageID, s.Image)
	}
	switch {
	case c.Now.State == Executing && u.Over(): // its state is older than that of the unit
		s.State.Terminated = m.unknownEnd(u, c, id)
	case c.Now.State == Executing:
		*s.Started = c.Started == nil || *c.Started
		s.Ready = c.Ready == nil || *c.Ready
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: timeOf(c.Now.Started)}
	case c.Now.State == Terminated:
		s.State.Terminated = terminated(&c.Now, id)
	case u.Phase == Succeeded: // as above
		s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: timeOf(u.Ended)}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: cmp.Or(c.Now.Reason, defaultReason), Message: m.waitsIn(u, c.Now.Message)}
	}
	if c.Last.State == Terminated {
		s.LastTerminationState.Terminated = terminated(&c.Last, m.containerID(u, c, max(c.Restarts-1, 0)))
	}
	return s
}

func (m statusMaker) containerID(u *Unit, c *Container, run int32) string {
	return fmt.Sprintf("%s://%s/%s/%d", m.scheme, u.ID, c.Name, run)
}

// waitsIn returns the message of a container that waits. It names the unit, so that another
// process knows that the pod was created.
func (m statusMaker) waitsIn(u *Unit, message string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s%s://%s)", message, unitPrefix, m.scheme, u.ID))
}

const unitPrefix = "(unit "

// isOver reports whether a pod has ended, by its status.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// createdIn returns the ID of the unit in which a pod that has not ended was created, by its
// status.
func (m statusMaker) createdIn(pod *corev1.Pod) (id string) {
	if isOver(pod) {
		return ""
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting == nil {
			continue
		}
		if _, text, ok := strings.Cut(s.State.Waiting.Message, unitPrefix+m.scheme+"://"); ok {
			return strings.TrimSuffix(text, ")")
		}
	}
	return m.ranIn(pod)
}

// ranIn returns the ID of the unit of a pod that has not ended and has run, by its status.
func (m statusMaker) ranIn(pod *corev1.Pod) (id string) {
	if isOver(pod) {
		return ""
	}
	for _, s := range pod.Status.ContainerStatuses {
		if rest, ok := strings.CutPrefix(s.ContainerID, m.scheme+"://"); ok {
			rest, _, _ = cutLast(rest)
			rest, _, _ = cutLast(rest)
			return rest
		}
	}
	return ""
}

// cutLast cuts at the last slash: the ID of a unit may have some.
func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndexByte(text, '/')
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

// unknownEnd returns the terminated state of a container whose end the service has not
// reported, while its unit has ended. It is the kubelet's for a container that it cannot
// find.
func (m statusMaker) unknownEnd(u *Unit, c *Container, id string) *corev1.ContainerStateTerminated {
	end := &corev1.ContainerStateTerminated{
		ExitCode: podspec.ExitUnknown, Reason: podspec.ReasonContainerStatusUnknown,
		Message:   "The pod has ended; " + m.service + " does not report how this container did",
		StartedAt: timeOf(c.Now.Started), FinishedAt: timeOf(u.Ended), ContainerID: id,
	}
	if u.Phase == Succeeded {
		end.ExitCode, end.Reason, end.Message = 0, "Completed", ""
	}
	return end
}

func terminated(r *Run, id string) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if r.ExitCode != 0 || r.Signal != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: r.ExitCode, Signal: r.Signal, Reason: cmp.Or(r.Reason, reason), Message: r.Message,
		StartedAt: timeOf(r.Started), FinishedAt: timeOf(r.Finished), ContainerID: id,
	}
}

func timeOf(t time.Time) metav1.Time { return metav1.NewTime(t) }

// podOf returns a pod made from its unit, for a pod that the API server no longer has: it
// is enough to show it, and to delete it. Its restart policy is not known, so its containers have
// not ended for good before the unit has.
func podOf(u *Unit, nodeName string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = u.Owner.Namespace, u.Owner.Name, u.Owner.UID
	pod.CreationTimestamp = timeOf(u.Owner.Created)
	pod.Spec.NodeName = nodeName
	if !u.Over() {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	for i := range u.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: u.Containers[i].Name, Image: u.Containers[i].Image})
	}
	return pod
}
