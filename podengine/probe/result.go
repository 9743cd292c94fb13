package probe

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Result is what the probes say of a container that runs.
type Result struct {
	// ContainerID is the attempt that was probed.
	ContainerID string
	// Started: the startup probe has succeeded, or there is none.
	Started bool
	// Ready: the container has started, and its readiness probe holds, or
	// there is none.
	Ready bool
	// StartupFailed and LivenessFailed: the container is to be killed. It is
	// not probed so any more.
	StartupFailed, LivenessFailed bool
	// Message is the output of the probe that failed last.
	Message string
}

// Failed says why the container is to be killed, in the words of the kubelet's
// event Killing, which adds whether it will be restarted; it is empty if there is no
// reason.
func (r Result) Failed(container string) string {
	switch {
	case r.StartupFailed:
		return fmt.Sprintf("Container %s failed startup probe", container)
	case r.LivenessFailed:
		return fmt.Sprintf("Container %s failed liveness probe", container)
	}
	return ""
}

// begin returns the result of a container that no probe was made of yet: alive,
// and neither started nor ready if there is a probe to say so.
func begin(spec *corev1.Container, known Container) Result {
	r := Result{ContainerID: known.ID}
	r.Started = spec.StartupProbe == nil || known.Started
	r.Ready = r.Started && (spec.ReadinessProbe == nil || known.Ready)
	return r
}

// with returns the result after a probe of a kind has reached its threshold.
func (r Result) with(kind Kind, success bool, message string, spec *corev1.Container) Result {
	switch {
	case kind == Readiness:
		r.Ready = success
	case kind == Startup && success:
		r.Started = true
		r.Ready = spec.ReadinessProbe == nil
	case kind == Startup:
		r.StartupFailed = true
	case !success:
		r.LivenessFailed = true
	}
	if !success {
		r.Message = message
	}
	return r
}

// wants reports whether probes of a kind are to be made of a container that runs.
// Between a failure that kills and the new container there are none, and a pod
// that terminates is not killed once more, but may still be ready.
func (r Result) wants(kind Kind, terminating bool) bool {
	switch kind {
	case Startup:
		return !r.Started && !r.StartupFailed && !terminating
	case Liveness:
		return r.Started && !r.LivenessFailed && !terminating
	default:
		return r.Started
	}
}

// counter counts equal outcomes in a row.
type counter struct {
	success bool
	row     int32
}

// add counts an outcome and reports whether there are as many in a row as the
// probe's threshold asks for: successThreshold (1 by default) or
// failureThreshold (3).
func (c *counter) add(success bool, probe *corev1.Probe) bool {
	if c.success != success {
		c.success, c.row = success, 0
	}
	c.row++
	if success {
		return c.row >= positive(probe.SuccessThreshold, 1)
	}
	return c.row >= positive(probe.FailureThreshold, 3)
}
