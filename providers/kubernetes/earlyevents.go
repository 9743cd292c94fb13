package kubernetes

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxEarlyEvents bounds the events that wait for their pod. Most of them are of pods
// of others, and wait in vain: the oldest go first.
const maxEarlyEvents = 256

// earlyEvents are events of remote pods that are not known yet: the watch of events
// may be ahead of that of pods. The zero value is empty; it is safe for concurrent use.
type earlyEvents struct {
	mu     sync.Mutex
	events []*corev1.Event
}

func (e *earlyEvents) add(event *corev1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.events) == maxEarlyEvents {
		e.events = slices.Delete(e.events, 0, 1)
	}
	e.events = append(e.events, event)
}

// take returns the events of a pod, in the order in which they came, and forgets them.
func (e *earlyEvents) take(uid types.UID) (taken []*corev1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = slices.DeleteFunc(e.events, func(event *corev1.Event) bool {
		if event.InvolvedObject.UID != uid {
			return false
		}
		taken = append(taken, event)
		return true
	})
	return taken
}
