package nodeutil

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
)

// reasonLeftAlone is the reason of the event on a pod that another provider runs.
const reasonLeftAlone = "LeftAlone"

// eventWriter writes events while it runs. A broadcaster has goroutines from its
// making on, so that a node that is not run must not have one.
//
// Of the Normal events it drops those above a rate, so that a thousand pods that
// start at once cost no thousand writes more, and leave room for the warnings.
type eventWriter struct {
	recorders atomic.Pointer[func(host string) record.EventRecorder] // nil unless it runs
	component string                                                 // that is the source of events
	normal    *rate.Limiter
	metrics   eventMetrics
}

// defaultEventSource is the component that events come from unless another is configured.
const defaultEventSource = "virtual-kubelet"

func newEventWriter(perSecond float32, burst int) *eventWriter {
	limit := rate.Limit(perSecond)
	if perSecond < 0 {
		limit = rate.Inf
	}
	return &eventWriter{component: defaultEventSource, normal: rate.NewLimiter(limit, burst), metrics: newEventMetrics()}
}

// start has events written to the API server, until the function that it returns
// is called.
func (w *eventWriter) start(client kubernetes.Interface) (stop func()) {
	broadcaster := record.NewBroadcaster()
	recorders := func(host string) record.EventRecorder {
		return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: w.component, Host: host})
	}
	broadcaster.StartRecordingToSink(countedSink{newEventSink(client), w.metrics.written})
	w.recorders.Store(&recorders)
	return broadcaster.Shutdown
}

// lateRecorder records the events of a node.
type lateRecorder struct {
	writer *eventWriter
	node   string // set before the node runs
	recent recentEvents
}

// target returns where an event of a type goes, or nil if it is not recorded.
func (r *lateRecorder) target(eventtype string) record.EventRecorder {
	recorders := r.writer.recorders.Load()
	if recorders == nil {
		return nil
	}
	if eventtype == corev1.EventTypeNormal && !r.writer.normal.Allow() {
		r.writer.metrics.limited.Inc()
		return nil
	}
	r.writer.metrics.recorded.WithLabelValues(eventtype).Inc()
	return (*recorders)(r.node)
}

func (r *lateRecorder) Event(object runtime.Object, eventtype, reason, message string) {
	r.recent.add(object, eventtype, reason, message)
	if to := r.target(eventtype); to != nil {
		to.Event(object, eventtype, reason, message)
	}
}

func (r *lateRecorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	r.recent.add(object, eventtype, reason, fmt.Sprintf(messageFmt, args...))
	if to := r.target(eventtype); to != nil {
		to.Eventf(object, eventtype, reason, messageFmt, args...)
	}
}

func (r *lateRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	r.recent.add(object, eventtype, reason, fmt.Sprintf(messageFmt, args...))
	if to := r.target(eventtype); to != nil {
		to.AnnotatedEventf(object, annotations, eventtype, reason, messageFmt, args...)
	}
}

var _ record.EventRecorder = (*lateRecorder)(nil)
