package nodeutil

import (
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtual-kubelet/virtual-kubelet/internal/statuspage"
)

// maxRecentEvents is how many events of a node are kept for its status page.
const maxRecentEvents = 32

// recentEvents are the last events of a node, the newest last. One that comes again moves there.
type recentEvents struct {
	mu     sync.Mutex
	events []statuspage.Event
}

func (r *recentEvents) add(object runtime.Object, eventtype, reason, message string) {
	message = statuspage.Shorten(message)
	event := statuspage.Event{Time: metav1.Now(), Type: eventtype, Reason: reason, Object: nameOfObject(object), Message: message, Count: 1}
	r.mu.Lock()
	defer r.mu.Unlock()
	same := slices.IndexFunc(r.events, func(e statuspage.Event) bool {
		return e.Object == event.Object && e.Reason == reason && e.Message == message && e.Type == eventtype
	})
	switch {
	case same >= 0:
		event.Count += r.events[same].Count
		r.events = slices.Delete(r.events, same, same+1)
	case len(r.events) == maxRecentEvents:
		r.events = slices.Delete(r.events, 0, 1)
	}
	r.events = append(r.events, event)
}

// list returns them, the newest first.
func (r *recentEvents) list() []statuspage.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	slices.Reverse(events)
	return events
}

// nameOfObject is kind, namespace and name of what an event is about.
func nameOfObject(object runtime.Object) string {
	if ref, ok := object.(*corev1.ObjectReference); ok {
		return named(ref.Kind, ref.Namespace, ref.Name)
	}
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" { // as in all that informers have
		kind = reflect.Indirect(reflect.ValueOf(object)).Type().Name()
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return kind
	}
	return named(kind, accessor.GetNamespace(), accessor.GetName())
}

func named(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}
