package kubernetes

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxEarlyEvents is the maximum number of events that wait for their pod. Most of them
// belong to pods of others; the oldest are dropped.
const maxEarlyEvents = 256

// earlyEvents are events of remote pods that are not in the cache: the watch of events
// may be ahead of the watch of pods. The zero value is empty. It is safe for concurrent
// use.
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

// pop removes and returns the events of a pod, in the order in which they were added.
func (e *earlyEvents) pop(uid types.UID) (events []*corev1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = slices.DeleteFunc(e.events, func(event *corev1.Event) bool {
		if event.InvolvedObject.UID != uid {
			return false
		}
		events = append(events, event)
		return true
	})
	return events
}
