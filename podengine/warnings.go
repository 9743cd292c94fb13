package podengine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// repeatAfter is how long a warning that still holds is not repeated: the
// cluster forgets events after an hour.
const repeatAfter = time.Hour

// warning is what is warned of: a pod, one of its containers, or a volume.
type warning struct{ about, reason string }

// statement is the text of a warning, and when it was recorded last.
type statement struct {
	text string
	at   time.Time
}

// warn records a warning about the pod, or about the container or volume of that
// name, unless the last one had the same text.
func (w *worker) warn(pod *corev1.Pod, about, reason, message string) {
	now := time.Now()
	w.mu.Lock()
	last := w.warned[warning{about, reason}]
	again := last.text == message && now.Sub(last.at) < repeatAfter
	if !again {
		w.warned[warning{about, reason}] = statement{message, now}
	}
	w.mu.Unlock()
	if !again {
		w.engine.containerEvent(pod, about, corev1.EventTypeWarning, reason, message)
	}
}

// check warns of an error. A nil error ends an earlier warning of that reason.
func (w *worker) check(pod *corev1.Pod, about, reason, prefix string, err error) {
	if err != nil {
		w.warn(pod, about, reason, prefix+err.Error())
		return
	}
	w.mu.Lock()
	delete(w.warned, warning{about, reason})
	w.mu.Unlock()
}

// checkStop warns of a pod that is to end and could not be stopped, unless that was given up.
func (w *worker) checkStop(ctx context.Context, pod *corev1.Pod, again bool, err error) error {
	if !again && ctx.Err() == nil {
		w.check(pod, "", eventKillFailed, "error killing pod: ", err)
	}
	return err
}
