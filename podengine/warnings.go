package podengine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// repeatAfter is how long a warning that still holds is not said again: the
// cluster forgets events after an hour.
const repeatAfter = time.Hour

// warning is what is warned of: a pod, one of its containers, or a volume.
type warning struct{ about, reason string }

// statement is what was said last.
type statement struct {
	text string
	at   time.Time
}

// warn records a warning about the pod, or about what has the given name in it,
// unless the same was said last.
func (w *worker) warn(pod *corev1.Pod, about, reason, message string) {
	now := time.Now()
	w.mu.Lock()
	last := w.said[warning{about, reason}]
	again := last.text == message && now.Sub(last.at) < repeatAfter
	if !again {
		w.said[warning{about, reason}] = statement{message, now}
	}
	w.mu.Unlock()
	if !again {
		w.engine.containerEvent(pod, about, corev1.EventTypeWarning, reason, message)
	}
}

// check warns of an error; without one, what was said before holds no more.
func (w *worker) check(pod *corev1.Pod, about, reason, prefix string, err error) {
	if err != nil {
		w.warn(pod, about, reason, prefix+err.Error())
		return
	}
	w.mu.Lock()
	delete(w.said, warning{about, reason})
	w.mu.Unlock()
}
