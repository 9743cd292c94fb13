package eci

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// eventLog knows which events of container groups were told as events of pods.
type eventLog struct {
	recorder record.EventRecorder
	since    time.Time // older ones were told by a process before this

	mu   sync.Mutex
	told map[string]map[string]string // group, event: the time of the last
}

func newEventLog(recorder record.EventRecorder, since time.Time) *eventLog {
	return &eventLog{recorder: recorder, since: since.Truncate(time.Second), told: map[string]map[string]string{}}
}

// tellEvents makes events of pods of what is new in a listing.
func (p *Provider) tellEvents(listed []group) {
	told := make(map[string]map[string]string, len(listed))
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	for i := range listed {
		told[listed[i].ContainerGroupId] = p.events.tell(podOf(&listed[i]), &listed[i])
	}
	p.events.told = told // without those of groups that are gone
}

// tell makes events of the pod of a group, and returns what is told then. l.mu is
// held.
func (l *eventLog) tell(pod *corev1.Pod, found *group) map[string]string {
	before := l.told[found.ContainerGroupId]
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

// volumesStale says that the volumes of a pod are not up to date.
func (l *eventLog) volumesStale(pod *corev1.Pod, message string) {
	if l.recorder != nil {
		l.recorder.Event(pod, corev1.EventTypeWarning, node.ReasonProviderUpdateFailed, message)
	}
}
