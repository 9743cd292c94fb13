package podengine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
)

// objectChanged wakes the workers of pods that refer to an object, and has them
// retry at once what has failed: they may wait for the object.
func (e *Engine) objectChanged(kind, namespace, name string) {
	for _, w := range e.all() {
		pod, _ := w.current()
		if _, named := podobjects.References(pod)[podenv.Object{Kind: kind, Namespace: namespace, Name: name}]; named {
			w.hasten()
		}
	}
}

// probesChanged wakes a pod's worker, and publishes at once whether the pod is ready:
// the worker may be busy for long, as with a graceful end.
func (e *Engine) probesChanged(uid types.UID) {
	w := e.worker(uid)
	if w == nil {
		return
	}
	w.nudge()
	w.republish(e.ctx)
}

// hasten has the worker retry what has failed, and refresh volumes, now.
func (w *worker) hasten() {
	w.hurry.Store(true)
	w.nudge()
}

// applyHint does what hasten has asked for.
func (w *worker) applyHint() {
	if !w.hurry.Swap(false) {
		return
	}
	w.stale = true
	for name, f := range w.failures {
		f.until = time.Time{}
		w.failures[name] = f
	}
}
