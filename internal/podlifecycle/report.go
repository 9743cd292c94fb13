package podlifecycle

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
)

// maxFailureText is how many bytes of an error are kept: as many as an event has.
const maxFailureText = 1024

// failure is an error with which a handler has failed for a pod.
type failure struct {
	in   **queue.Queue
	text string
	at   time.Time
}

// noting is the handler of a queue that is made of it, and keeps the error with which it last
// failed for a pod, for people.
func (pc *Controller) noting(handler queue.Handler, in **queue.Queue) queue.Handler {
	return func(ctx context.Context, key string) error {
		err := handler(ctx, key)
		if err == queue.ErrTakesLong || ctx.Err() != nil { //nolint:errorlint // it is returned as it is
			return err
		}
		r := pc.records.get(types.UID(key))
		if r == nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case err != nil:
			text := err.Error()
			r.failure = &failure{in, text[:min(len(text), maxFailureText)], time.Now()}
		case r.failure != nil && r.failure.in == in:
			r.failure = nil
		}
		return err
	}
}

// PodReport is how far a pod has come, for people. Times are zero for steps that it has not
// reached, or that an earlier process has seen.
type PodReport struct {
	Namespace, Name string
	UID             types.UID
	// Phase is what the API has, or is about to have. Waiting is why the pod is not any
	// further, as its status says.
	Phase   corev1.PodPhase
	Waiting string
	// Orphan is set if the provider holds the pod and the API does not have it.
	Orphan bool

	// RequestedAt is when the pod was created in the API, SeenAt when this process first saw
	// it, CreatedAt when the provider accepted it, RunningAt when its first container
	// started, ReadyAt since when it is ready.
	RequestedAt, SeenAt, CreatedAt, RunningAt, ReadyAt time.Time
	// DeletedAt is when its deletion was requested, StoppedAt when the provider accepted to
	// stop it.
	DeletedAt, StoppedAt time.Time

	// Call is the call of the provider about the pod that has not returned; the oldest if
	// there are several.
	Call ProviderCall
	// Error is the last error, at ErrorAt, that no success has followed. Tries is how often
	// it has been tried, NextTry when it is tried again; zero while it is.
	Error   string
	ErrorAt time.Time
	Tries   int
	NextTry time.Time
}

// PodReports returns a report of each pod of which something is known, by namespace and
// name.
func (pc *Controller) PodReports() []PodReport {
	calls := map[types.UID]ProviderCall{}
	for _, c := range pc.calls.calls.List() {
		if known, ok := calls[c.UID]; !ok || c.Since.Before(known.Since) {
			calls[c.UID] = c
		}
	}
	var reports []PodReport
	pc.records.each(func(r *podRecord) {
		report, failed := r.report()
		report.Call = calls[r.id]
		if failed != nil {
			report.Tries, report.NextTry = failed.NextTry(r.key())
		}
		reports = append(reports, report)
	})
	slices.SortFunc(reports, func(a, b PodReport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), a.SeenAt.Compare(b.SeenAt))
	})
	return reports
}

// report returns the report of the pod but for calls and retries, and the queue in which it
// is tried again, if it has failed.
func (r *podRecord) report() (PodReport, *queue.Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := &r.pod.Status
	if r.desiredStatus != nil {
		status = r.desiredStatus
	}
	report := PodReport{
		Namespace: r.name.Namespace, Name: r.name.Name, UID: r.id, Orphan: r.orphan,
		Phase: cmp.Or(status.Phase, corev1.PodPending), Waiting: waitingReason(status),
		RequestedAt: r.pod.CreationTimestamp.Time, SeenAt: r.seenAt, CreatedAt: r.createdAt,
		RunningAt: firstStart(status), ReadyAt: readySince(status),
	}
	if r.pod.DeletionTimestamp != nil {
		report.DeletedAt = r.pod.DeletionTimestamp.Time
		if grace := r.pod.DeletionGracePeriodSeconds; grace != nil {
			report.DeletedAt = report.DeletedAt.Add(-time.Duration(*grace) * time.Second)
		}
	}
	if r.requested != requestedNone {
		report.StoppedAt = r.requestedAt
	}
	if r.failure == nil {
		return report, nil
	}
	report.Error, report.ErrorAt = r.failure.text, r.failure.at
	return report, *r.failure.in
}

// waitingReason is the reason of the pod, or of the first container that waits.
func waitingReason(status *corev1.PodStatus) string {
	if status.Reason != "" {
		return status.Reason
	}
	for c := range podstatus.Containers(status) {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return w.Reason
		}
	}
	return ""
}

// firstStart is when the first of the containers started that are no init containers.
func firstStart(status *corev1.PodStatus) (first time.Time) {
	for i := range status.ContainerStatuses {
		for _, state := range []corev1.ContainerState{status.ContainerStatuses[i].State, status.ContainerStatuses[i].LastTerminationState} {
			var at time.Time
			switch {
			case state.Running != nil:
				at = state.Running.StartedAt.Time
			case state.Terminated != nil:
				at = state.Terminated.StartedAt.Time
			}
			if !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

func readySince(status *corev1.PodStatus) time.Time {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
