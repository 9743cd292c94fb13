package nodeutil

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// lateRecorder records events while the node runs. A broadcaster has goroutines
// from its making on, so that a node that is not run must not have one.
type lateRecorder struct {
	recorder atomic.Pointer[record.EventRecorder]
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
	if to := r.recorder.Load(); to != nil {
		(*to).Event(object, eventtype, reason, message)
	}
}

func (r *lateRecorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	if to := r.recorder.Load(); to != nil {
		(*to).Eventf(object, eventtype, reason, messageFmt, args...)
	}
}

func (r *lateRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	if to := r.recorder.Load(); to != nil {
		(*to).AnnotatedEventf(object, annotations, eventtype, reason, messageFmt, args...)
	}
}

var _ record.EventRecorder = (*lateRecorder)(nil)
