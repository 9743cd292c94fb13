package eci

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// eventRecorder records events of container groups as events of their pods, once.
type eventRecorder struct {
	recorder record.EventRecorder
	since    time.Time // older events were recorded by an earlier process

	mu       sync.Mutex
	recorded map[string]map[string]string // the last timestamp, by group and event
}

func newEventRecorder(recorder record.EventRecorder, since time.Time) *eventRecorder {
	return &eventRecorder{recorder: recorder, since: since.Truncate(time.Second), recorded: map[string]map[string]string{}}
}

// recordEvents records the events that are new in a listing.
func (p *Provider) recordEvents(listed []group) {
	recorded := make(map[string]map[string]string, len(listed))
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	for i := range listed {
		recorded[listed[i].ContainerGroupId] = p.events.record(podOf(&listed[i]), &listed[i])
	}
	p.events.recorded = recorded // drops groups that are gone
}

// record records the new events of a group, and returns the timestamps of all. The
// caller holds l.mu.
func (l *eventRecorder) record(pod *corev1.Pod, found *group) map[string]string {
	before := l.recorded[found.ContainerGroupId]
	now := make(map[string]string, len(found.Events))
	for _, e := range found.Events {
		key := e.Type + "/" + e.Reason + "/" + e.Message
		now[key] = e.LastTimestamp
		if before[key] == e.LastTimestamp || timeOf(e.LastTimestamp).Time.Before(l.since) || l.recorder == nil {
			continue
		}
		kind := corev1.EventTypeNormal
		if e.Type == corev1.EventTypeWarning {
			kind = corev1.EventTypeWarning
		}
		l.recorder.Event(pod, kind, e.Reason, e.Message)
	}
	return now
}

// recordStaleVolumes records that the volumes of a pod are not up to date.
func (l *eventRecorder) recordStaleVolumes(pod *corev1.Pod, message string) {
	if l.recorder != nil {
		l.recorder.Event(pod, corev1.EventTypeWarning, node.ReasonProviderUpdateFailed, message)
	}
}
