package nomad

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// record is what is known of a job.
type record struct {
	id       string
	meta     map[string]string
	stopped  bool // its deregistration was accepted
	dead     bool
	created  time.Time
	index    uint64 // of its creation
	modified uint64
	// alloc is its first allocation: a pod does not move. Nomad makes others where it
	// loses, drains or preempts the first.
	alloc   *api.Allocation
	moved   bool
	trouble podgroup.Event // why it has no allocation
}

// recordOf returns what a job says.
func recordOf(job *api.Job) *record {
	return &record{
		id: value(job.ID), meta: job.Meta, stopped: value(job.Stop), dead: value(job.Status) == "dead", created: time.Unix(0, value(job.SubmitTime)),
		index: value(job.CreateIndex), modified: value(job.ModifyIndex),
	}
}

// add adds an allocation, if it is of this job, and not of one before with the same ID.
func (r *record) add(found *api.Allocation) {
	copied := *found
	a := &copied
	switch {
	case a.CreateIndex < r.index:
	case r.alloc == nil || a.CreateIndex < r.alloc.CreateIndex:
		r.moved = r.moved || r.alloc != nil
		r.alloc = a
	case a.ID == r.alloc.ID:
		if a.ModifyIndex < r.alloc.ModifyIndex {
			return
		}
		if a.NetworkStatus == nil { // lists do not show it
			a.NetworkStatus = r.alloc.NetworkStatus
		}
		r.alloc = a
	default:
		r.moved = true
	}
}

// unit returns the unit of a job, and whether there is one: a job without an allocation has
// none once it has stopped.
func (r *record) unit() (u podgroup.Unit, ok bool) {
	a := r.alloc
	u = podgroup.Unit{ID: r.id, Tags: r.meta, Created: r.created}
	if r.trouble.Reason != "" {
		u.Events = []podgroup.Event{r.trouble}
	}
	if a == nil {
		// Nomad forgets allocations before jobs; the pod's status has the end.
		return u, !r.stopped && !r.dead
	}
	u.Data = allocRef{a.ID, a.NodeID}
	u.IPs, u.HostIPs = addresses(a)
	for name, state := range a.TaskStates {
		if state != nil {
			u.Containers = append(u.Containers, container(name, state))
			if state.FinishedAt.After(u.Ended) {
				u.Ended = state.FinishedAt
			}
		}
	}
	switch a.ClientStatus {
	case api.AllocClientStatusRunning, api.AllocClientStatusUnknown:
		u.Phase = podgroup.Running
	case api.AllocClientStatusComplete:
		u.Phase = podgroup.Succeeded
	case api.AllocClientStatusFailed, api.AllocClientStatusLost:
		u.Phase = podgroup.Failed
	}
	if a.ClientStatus == api.AllocClientStatusUnknown { // its machine is not connected
		for i := range u.Containers {
			u.Containers[i].Ready = new(false)
		}
	}
	if r.runsAgain() {
		if u.Unknown = !r.hasEnded(); !u.Unknown { // until nothing of it runs its status stays as it is
			u.Phase = podgroup.Failed
		}
		for i := range u.Containers {
			if run, ok := r.interrupted(u.Containers[i].Name); ok {
				u.Containers[i] = podgroup.Container{Name: u.Containers[i].Name, Now: run}
			}
		}
	}
	over := u.Over()
	if over && u.Ended.IsZero() {
		u.Ended = time.Unix(0, a.ModifyTime)
	}
	if r.stopped && !over {
		u.Phase = podgroup.Stopping
	}
	if failure := r.displaced(); failure != nil && over {
		u.Phase, u.Failure = podgroup.Failed, failure
	}
	return u, true
}

// taskRestoreFailed is the type of the event of a task that Nomad's client has not found when it was
// started again, such as with the machine or with Docker. It starts the task again, regardless of the
// restart policy.
const taskRestoreFailed = "Failed Restoring Task"

// interrupted returns the run of a container that is to run once, and whose machine has lost it.
func (r *record) interrupted(name string) (run podgroup.Run, ok bool) {
	state := r.alloc.TaskStates[name]
	if state == nil || !slices.Contains(strings.Split(r.meta[metaOnce], ","), name) {
		return run, false
	}
	for _, e := range state.Events {
		switch {
		case e.Type == api.TaskStarted && run.Started.IsZero():
			run.Started = time.Unix(0, e.Time)
		case e.Type == taskRestoreFailed:
			run.State, run.Finished = podgroup.Terminated, time.Unix(0, e.Time)
			run.ExitCode, run.Reason, run.Message = podspec.ExitUnknown, podspec.ReasonContainerStatusUnknown, e.DisplayMessage
			return run, true
		}
	}
	return run, false
}

// hasEnded reports whether nothing of the allocation runs, as far as its machine says.
func (r *record) hasEnded() bool {
	switch r.alloc.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return false
}

// runsAgain reports whether a pod that is to run once runs again, or is about to, or its job was
// stopped for that. A run that has come to an end before counts.
func (r *record) runsAgain() bool {
	if r.alloc == nil || r.hasEnded() && !r.stopped {
		return false
	}
	for name := range r.alloc.TaskStates {
		if _, ok := r.interrupted(name); ok {
			return true
		}
	}
	return false
}

// notNeeded is Nomad's description of an allocation whose job is stopped.
const notNeeded = "alloc not needed due to job update"

// displaced returns why Nomad ended a pod that did not end by itself, and whose job was not
// stopped before; nil if it did not.
func (r *record) displaced() *podspec.Failure {
	a := r.alloc
	if r.runsAgain() {
		return &podspec.Failure{Reason: "NodeRestarted", Message: "The machine of the pod has lost it when Nomad was started again there: the pod is to run once, and does not run again", Disrupted: true}
	}
	if a == nil || r.stopped && a.DesiredDescription == notNeeded {
		return nil
	}
	message := cmp.Or(a.ClientDescription, a.DesiredDescription, "Nomad gives no reason")
	switch {
	case a.ClientStatus == api.AllocClientStatusLost:
		return &podspec.Failure{Reason: "NodeLost", Message: "The machine of the pod was lost: " + message, Disrupted: true}
	case a.DesiredStatus == api.AllocDesiredStatusEvict || a.PreemptedByAllocation != "":
		return &podspec.Failure{Reason: "Preempted", Message: cmp.Or(a.DesiredDescription, message), Disrupted: true}
	case a.DesiredStatus == api.AllocDesiredStatusStop:
		return &podspec.Failure{Reason: "Evicted", Message: cmp.Or(a.DesiredDescription, message), Disrupted: true}
	}
	return nil
}

// allocRef is the allocation of a unit.
type allocRef struct{ id, node string }

// addresses returns the addresses of an allocation and of its machine.
func addresses(a *api.Allocation) (pod, host []string) {
	if r := a.AllocatedResources; r != nil {
		for _, n := range r.Shared.Networks {
			if n != nil && n.IP != "" && len(host) == 0 {
				host = []string{n.IP}
			}
		}
	}
	if s := a.NetworkStatus; s != nil {
		for _, ip := range []string{s.Address, s.AddressIPv6} {
			if ip != "" {
				pod = append(pod, ip)
			}
		}
	}
	if len(pod) == 0 && a.ClientStatus == api.AllocClientStatusRunning && inHostNetwork(a) {
		pod = host
	}
	return pod, host
}

func inHostNetwork(a *api.Allocation) bool {
	if r := a.AllocatedResources; r != nil {
		for _, n := range r.Shared.Networks {
			if n != nil && n.Mode != networkHost && n.Mode != "" {
				return false
			}
		}
	}
	return true
}

// States of a task.
const (
	taskRunning = "running"
	taskDead    = "dead"
)

// container translates the state of a task, and its events, of which Nomad keeps ten.
func container(name string, state *api.TaskState) podgroup.Container {
	c := podgroup.Container{Name: name, Restarts: int32(min(state.Restarts, 1<<30))} // #nosec G115 -- limited
	var ends []podgroup.Run
	var failed *api.TaskEvent // the last that kept the task from running
	for _, e := range state.Events {
		switch e.Type {
		case api.TaskStarted:
			failed = nil
		case api.TaskTerminated:
			ends, failed = append(ends, runOf(e)), nil
		case api.TaskDriverFailure, api.TaskSetupFailure, api.TaskFailedValidation, api.TaskArtifactDownloadFailed:
			failed = e
		}
	}
	if state.State == taskDead && len(ends) > 0 && failed == nil {
		c.Now = ends[len(ends)-1]
		c.Now.Started, c.Now.Finished = state.StartedAt, cmp.Or(state.FinishedAt, c.Now.Finished)
		ends = ends[:len(ends)-1]
	}
	if len(ends) > 0 && state.Restarts > 0 {
		c.Last = ends[len(ends)-1]
	}
	switch {
	case state.State == taskRunning:
		c.Now = podgroup.Run{State: podgroup.Executing, Started: state.StartedAt}
	case state.State == taskDead && c.Now.State != podgroup.Terminated:
		c.Now = unfinished(state, failed)
	case state.State != taskDead:
		c.Now = podgroup.Run{State: podgroup.Waiting}
		if failed != nil {
			c.Now.Reason, c.Now.Message = "CreateContainerError", failed.DisplayMessage
		} else if c.Last.State == podgroup.Terminated {
			c.Now.Reason, c.Now.Message = "CrashLoopBackOff", lastMessage(state)
		}
	}
	return c
}

// unfinished returns the state of a task that is dead, and of whose end Nomad says nothing.
func unfinished(state *api.TaskState, failed *api.TaskEvent) podgroup.Run {
	end := podgroup.Run{State: podgroup.Terminated, Started: state.StartedAt, Finished: state.FinishedAt}
	switch {
	case failed != nil:
		end.ExitCode, end.Reason, end.Message = 128, "StartError", failed.DisplayMessage
	case state.Failed || !state.StartedAt.IsZero():
		end.ExitCode, end.Reason, end.Message = podspec.ExitUnknown, podspec.ReasonContainerStatusUnknown, lastMessage(state)
	default: // it never ran
		return podgroup.Run{State: podgroup.Waiting, Message: lastMessage(state)}
	}
	return end
}

// runOf returns the run that an event says the end of.
func runOf(e *api.TaskEvent) podgroup.Run {
	number := func(key string, otherwise int) int32 {
		if n, err := strconv.ParseInt(e.Details[key], 10, 32); err == nil {
			return int32(n)
		}
		return int32(otherwise) // #nosec G115 -- an exit code or a signal
	}
	run := podgroup.Run{State: podgroup.Terminated, ExitCode: number("exit_code", e.ExitCode), Signal: number("signal", e.Signal), Finished: time.Unix(0, e.Time)}
	if run.Signal != 0 && run.ExitCode == 0 {
		run.ExitCode = 128 + run.Signal
	}
	if e.Details["oom_killed"] == "true" {
		run.Reason = "OOMKilled"
		run.ExitCode = cmp.Or(run.ExitCode, 137)
	}
	return run
}

func lastMessage(state *api.TaskState) string {
	if n := len(state.Events); n > 0 {
		return state.Events[n-1].DisplayMessage
	}
	return ""
}

// placement returns the event of an evaluation that found no machine for a job.
func placement(e *api.Evaluation) (event podgroup.Event, ok bool) {
	metric := e.FailedTGAllocs[groupName]
	if metric == nil {
		return podgroup.Event{}, false
	}
	message := "Nomad has no machine for the pod: " + strconv.Itoa(metric.NodesEvaluated) + " considered"
	for constraint, n := range metric.ConstraintFiltered {
		message += "; " + strconv.Itoa(n) + " without " + constraint
	}
	for dimension, n := range metric.DimensionExhausted {
		message += "; " + strconv.Itoa(n) + " with too little " + dimension
	}
	at := time.Now()
	if e.ModifyTime != 0 {
		at = time.Unix(0, e.ModifyTime)
	}
	return podgroup.Event{Type: corev1.EventTypeWarning, Reason: "FailedPlacement", Message: message, At: at}, true
}
