package nodeutil

import (
	"sync/atomic"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// lateRecorder records events while the node runs. A broadcaster has goroutines
// from its making on, so that a node that is not run must not have one.
//
// Of the events that tell of no problem it drops those above a rate, so that a
// thousand pods that start at once cost no thousand writes more, and leave room
// for the warnings.
type lateRecorder struct {
	recorder atomic.Pointer[record.EventRecorder]
	normal   *rate.Limiter
}

func newLateRecorder(perSecond float32, burst int) *lateRecorder {
	limit := rate.Limit(perSecond)
	if perSecond < 0 {
		limit = rate.Inf
	}
	return &lateRecorder{normal: rate.NewLimiter(limit, burst)}
}

// target returns where an event of a type goes, or nil if it is not recorded.
func (r *lateRecorder) target(eventtype string) record.EventRecorder {
	to := r.recorder.Load()
	if to == nil || eventtype == corev1.EventTypeNormal && !r.normal.Allow() {
		return nil
	}
	return *to
}

// start has the events of the named node written to the API server, until the
// function that it returns is called.
func (r *lateRecorder) start(client kubernetes.Interface, nodeName string) (stop func()) {
	broadcaster := record.NewBroadcaster()
	var recorder record.EventRecorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "virtual-kubelet", Host: nodeName})
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	r.recorder.Store(&recorder)
	return broadcaster.Shutdown
}

func (r *lateRecorder) Event(object runtime.Object, eventtype, reason, message string) {
	if to := r.target(eventtype); to != nil {
		to.Event(object, eventtype, reason, message)
	}
}

func (r *lateRecorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	if to := r.target(eventtype); to != nil {
		to.Eventf(object, eventtype, reason, messageFmt, args...)
	}
}

func (r *lateRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	if to := r.target(eventtype); to != nil {
		to.AnnotatedEventf(object, annotations, eventtype, reason, messageFmt, args...)
	}
}

var _ record.EventRecorder = (*lateRecorder)(nil)
