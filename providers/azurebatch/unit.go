package azurebatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// unit translates what Batch says of a task. filter are the tags that all units of the node
// have, for tasks of the older provider, which have none.
func (b *backend) unit(t *azbatch.Task, filter map[string]string) podgroup.Unit {
	d := b.detailOf(deref(t.ID))
	l := labelOf(t, &d)
	if l != nil && l == d.older {
		l = &label{Tags: maps.Clone(l.Tags), Init: l.Init, Containers: l.Containers, Restart: l.Restart}
		maps.Copy(l.Tags, filter)
	}
	u := podgroup.Unit{ID: deref(t.ID), Created: deref(t.CreationTime)}
	if l == nil { // not a pod's
		return u
	}
	u.Tags, u.Data = l.Tags, l
	if address := b.addressOf(t); address != "" {
		u.IPs = []string{address}
	}
	info := t.ExecutionInfo
	if info == nil {
		info = &azbatch.TaskExecutionInfo{}
	}
	ended := same(t.State, azbatch.TaskStateCompleted)
	requeued := deref(info.RequeueCount) > 0
	if requeued {
		u.Events = append(u.Events, podgroup.Event{
			Type: corev1.EventTypeWarning, Reason: "Requeued", Message: "Azure Batch has lost the machine on which the pod ran, and put its task into the queue again", At: deref(info.LastRequeueTime),
		})
	}
	switch {
	case (requeued || d.again) && l.Restart == corev1.RestartPolicyNever && (!ended || info.ExitCode == nil):
		// It is to run once, and has run; refresh terminates the task.
		u.Phase, u.Ended = podgroup.Failed, cmp.Or(deref(info.LastRequeueTime), deref(t.StateTransitionTime))
		u.Failure = &podspec.Failure{Reason: "NodeLost", Message: "the machine on which the pod ran was taken away, or has failed", Disrupted: true}
		return u
	case ended && b.needsDetail(t, l) && !d.final: // how the containers ended is not known yet
		u.Phase = podgroup.Running
	case ended:
		u.Phase, u.Ended = podgroup.Failed, cmp.Or(deref(info.EndTime), deref(t.StateTransitionTime))
		if info.ExitCode != nil && *info.ExitCode == 0 {
			u.Phase = podgroup.Succeeded
		}
		if f := info.FailureInfo; f != nil && info.ExitCode == nil {
			u.Failure = &podspec.Failure{Reason: cmp.Or(deref(f.Code), "TaskFailed"), Message: failureText(f)}
		}
	case same(t.State, azbatch.TaskStateRunning):
		u.Phase = podgroup.Running
	}
	u.Containers = b.containers(t, info, l, d, u.Phase)
	if c := d.failed; c != nil && u.Over() {
		u.Failure = c
	}
	return u
}

// failureText returns what Batch says of a task that could not be run.
func failureText(f *azbatch.TaskFailureInfo) string {
	text := deref(f.Message)
	for _, more := range f.Details {
		if value := deref(more.Value); value != "" {
			text += fmt.Sprintf("; %s: %s", deref(more.Name), value)
		}
	}
	return text[:min(len(text), maxErrorText)]
}

// containers translates the state of a task, or what its script has written.
func (b *backend) containers(t *azbatch.Task, info *azbatch.TaskExecutionInfo, l *label, d detail, phase podgroup.Phase) (all []podgroup.Container) {
	for i, name := range slices.Concat(l.Init, l.Containers) {
		c := podgroup.Container{Name: name}
		isInit := i < len(l.Init)
		written, isWritten := d.containers[name]
		switch {
		case isWritten:
			c = written.container(name, l.Restart, *b.cfg.MaxRetries, phase)
		case phase == podgroup.Pending:
			c.Now = podgroup.Run{Reason: "ContainerCreating", Message: "the task waits in the queue of Azure Batch"}
			if same(t.State, azbatch.TaskStatePreparing) {
				c.Now.Message = "the machine gets what the task needs"
			}
		case phase == podgroup.Running && isInit && !b.needsDetail(t, l):
			c.Now = podgroup.Run{State: podgroup.Terminated, Started: deref(info.StartTime), Finished: deref(info.StartTime)}
		case phase == podgroup.Running && b.needsDetail(t, l):
			c.Now = podgroup.Run{Reason: "PodInitializing"}
		case phase == podgroup.Running:
			c.Now = podgroup.Run{State: podgroup.Executing, Started: deref(info.StartTime)}
		case info.ExitCode != nil && !isInit:
			c.Now = podgroup.Run{State: podgroup.Terminated, ExitCode: *info.ExitCode, Started: deref(info.StartTime), Finished: deref(info.EndTime)}
		case info.StartTime != nil: // it may have run
			c.Now = podgroup.Run{State: podgroup.Executing, Started: deref(info.StartTime)}
		}
		c.Restarts += deref(info.RetryCount) + deref(info.RequeueCount)
		all = append(all, c)
	}
	return all
}

// needsDetail reports whether Batch does not say enough of a task: its script does.
func (b *backend) needsDetail(t *azbatch.Task, l *label) bool {
	if !l.Script {
		return false
	}
	several := len(l.Init)+len(l.Containers) > 1 || l.Restart == corev1.RestartPolicyOnFailure
	return several || same(t.State, azbatch.TaskStateCompleted) && t.ExecutionInfo != nil && deref(t.ExecutionInfo.ExitCode) != 0
}

// container translates what the script has written of a container.
func (w *written) container(name string, restart corev1.RestartPolicy, retries int32, phase podgroup.Phase) podgroup.Container {
	c := podgroup.Container{Name: name, Now: w.now, Last: w.last, Restarts: w.run}
	again := restart == corev1.RestartPolicyOnFailure && w.now.ExitCode != 0 && (retries < 0 || w.run < retries)
	if phase == podgroup.Running && w.now.State == podgroup.Terminated && again {
		c.Last, c.Now = w.now, podgroup.Run{Reason: "CrashLoopBackOff", Message: "the container is started again after a while"}
	}
	return c
}

// labelOf returns what a task says of its pod, or what is known of one of the older provider.
func labelOf(t *azbatch.Task, d *detail) *label {
	if l := parseLabel(deref(t.DisplayName)); l != nil {
		return l
	}
	return d.older
}

// againAfter is how much later than its pod a task has started that runs again: clocks differ.
const againAfter = time.Minute

// runsAgain reports whether a task that is to run once has run, and waits to run again or
// does. Batch counts only what users have put into the queue. Where a machine was preempted,
// has failed or was started again, the state before says that the task has run, while it
// waits; and once it runs, that it has started later than the pod's status says. Tasks whose
// pods this cluster does not have are others' affair.
func (b *backend) runsAgain(t *azbatch.Task, l *label) bool {
	if l == nil || l.Restart != corev1.RestartPolicyNever || same(t.State, azbatch.TaskStateCompleted) || b.pods == nil {
		return false
	}
	pod, err := b.pods.Pods(l.Tags[podgroup.TagNamespace]).Get(l.Tags[podgroup.TagPodName])
	if err != nil || string(pod.UID) != l.Tags[podgroup.TagUID] {
		return false
	}
	info := t.ExecutionInfo
	if info != nil && deref(info.RequeueCount) > 0 {
		return true
	}
	if !same(t.State, azbatch.TaskStateRunning) {
		return same(t.PreviousState, azbatch.TaskStateRunning)
	}
	started := startOf(pod, deref(t.ID))
	return info != nil && !started.IsZero() && deref(info.StartTime).Sub(started) > againAfter
}

// startOf returns when the first container of a pod has started in a task, by the pod's
// status; zero if that is not known.
func startOf(pod *corev1.Pod, id string) (first time.Time) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		at := time.Time{}
		switch {
		case !strings.HasPrefix(s.ContainerID, scheme+"://"+id+"/"): // such as one of the older provider
		case s.State.Running != nil:
			at = s.State.Running.StartedAt.Time
		case s.State.Terminated != nil:
			at = s.State.Terminated.StartedAt.Time
		}
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
