package podgroup

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Reasons of events. reasonNotSupported and reasonUnitGone begin the messages of pods that
// fail.
const (
	reasonUnitGone         = "UnitGone"
	reasonNotSupported     = "ProviderNotSupported"
	reasonFieldsIgnored    = "ProviderFieldsIgnored"
	reasonSizeRoundedUp    = "SizeRoundedUp"
	reasonSuperfluousUnit  = "SuperfluousUnitDeleted"
	reasonSuperfluousStays = "SuperfluousUnitNotDeleted"
)

// eventRecorder records events of units as events of their pods, once. It is safe for
// concurrent use.
type eventRecorder struct {
	recorder record.EventRecorder // nil records nothing
	since    time.Time            // older events of the first list were recorded by an earlier process

	mu       sync.Mutex
	listed   bool                    // the first list was recorded
	recorded map[string]recordedUnit // by its ID
}

// recordedUnit has when each event of a unit happened last, and when a list or an event had
// the unit last.
type recordedUnit struct {
	events map[string]time.Time
	seen   time.Time
}

// recordedMaxAge is how long the events of a unit are known that lists lack.
const recordedMaxAge = time.Hour

func newEventRecorder(recorder record.EventRecorder, since time.Time) *eventRecorder {
	return &eventRecorder{recorder: recorder, since: since.Truncate(time.Second), recorded: map[string]recordedUnit{}}
}

// recordAll records the events that are new in a list of all units.
func (r *eventRecorder) recordAll(list []Unit, nodeName string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list {
		r.record(&list[i], nodeName)
	}
	r.listed = true
	maps.DeleteFunc(r.recorded, func(_ string, u recordedUnit) bool { return time.Since(u.seen) > recordedMaxAge })
}

// created notes that a unit has no events of an earlier process.
func (r *eventRecorder) created(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded[id] = recordedUnit{seen: time.Now()}
}

// recordOne records the events that are new in a unit.
func (r *eventRecorder) recordOne(u *Unit, nodeName string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record(u, nodeName)
}

// record records the new events of a unit. The caller holds r.mu.
func (r *eventRecorder) record(u *Unit, nodeName string) {
	known, seen := r.recorded[u.ID]
	before := known.events
	now := make(map[string]time.Time, len(u.Events))
	for _, e := range u.Events {
		key := e.Type + "/" + e.Reason + "/" + e.Message
		now[key] = e.At
		// The time of events counts only for a unit that an earlier process may have seen:
		// the service's clock may be behind.
		if before[key].Equal(e.At) || !seen && !r.listed && e.At.Before(r.since) {
			continue
		}
		kind := corev1.EventTypeNormal
		if e.Type == corev1.EventTypeWarning {
			kind = corev1.EventTypeWarning
		}
		r.event(podOf(u, nodeName), kind, e.Reason, e.Message)
	}
	r.recorded[u.ID] = recordedUnit{now, time.Now()}
}

func (r *eventRecorder) event(pod *corev1.Pod, kind, reason, message string) {
	if r.recorder != nil {
		r.recorder.Event(pod, kind, reason, message)
	}
}

// recordCreated records what the pod gets otherwise than its spec says: fields that are
// ignored, and a size that was rounded up.
func (r *eventRecorder) recordCreated(pod *corev1.Pod, service string, ignored []string, needs, gets Size) {
	if len(ignored) > 0 {
		r.event(pod, corev1.EventTypeWarning, reasonFieldsIgnored, service+" does not have, and so ignores: "+strings.Join(ignored, "; "))
	}
	if needs.CPU.Cmp(gets.CPU) != 0 || needs.Memory.Cmp(gets.Memory) != 0 {
		r.event(pod, corev1.EventTypeNormal, reasonSizeRoundedUp, fmt.Sprintf("%s CPUs and %s of memory are used and paid for: the smallest size that %s sells for %s and %s",
			gets.CPU.String(), gets.Memory.String(), service, needs.CPU.String(), needs.Memory.String()))
	}
}

// recordStaleFiles records that the files of a pod are not up to date.
func (r *eventRecorder) recordStaleFiles(pod *corev1.Pod, message string) {
	r.event(pod, corev1.EventTypeWarning, node.ReasonProviderUpdateFailed, message)
}

func (r *eventRecorder) recordWarnings(pod *corev1.Pod, warnings []podspec.Warning) {
	for _, w := range warnings {
		r.event(pod, corev1.EventTypeWarning, w.Reason, w.Message)
	}
}

// recordSuperfluous records the deletion of a unit of a pod that has an older one.
func (r *eventRecorder) recordSuperfluous(ctx context.Context, u *Unit, nodeName string, err error) {
	fields := log.Fields{"unit": u.ID, "namespace": u.Owner.Namespace, "pod": u.Owner.Name, "uid": string(u.Owner.UID)}
	pod := podOf(u, nodeName)
	if err != nil {
		log.G(ctx).WithFields(fields).WithError(err).Warn("Cannot delete a second unit of a pod")
		r.event(pod, corev1.EventTypeWarning, reasonSuperfluousStays, fmt.Sprintf("Unit %s runs the pod a second time, and cannot be deleted: %s", u.ID, err))
		return
	}
	log.G(ctx).WithFields(fields).Warn("Deleted a second unit of a pod")
	r.event(pod, corev1.EventTypeWarning, reasonSuperfluousUnit, fmt.Sprintf("Deleted unit %s, which ran the pod a second time: the answer to its creation was lost", u.ID))
}
