package nodeutil

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// Many pods at once cost events of a bounded number, and no warning.
func TestEventsAreLimited(t *testing.T) {
	for name, c := range map[string]struct {
		qps   float32
		burst int
		want  int // of 300 at once, and 300 two seconds later
	}{
		"limited":   {10, 100, 120},
		"unlimited": {-1, 1, 600},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorded := record.NewFakeRecorder(2000)
				to := func(string) record.EventRecorder { return recorded }
				r := &lateRecorder{writer: newEventWriter(c.qps, c.burst)}
				r.Event(&corev1.Pod{}, corev1.EventTypeWarning, "Early", "before the node runs")
				r.writer.recorders.Store(&to)
				for range 2 {
					for range 100 {
						r.Event(&corev1.Pod{}, corev1.EventTypeNormal, "Fine", "message")
						r.Eventf(&corev1.Pod{}, corev1.EventTypeNormal, "Fine", "message %d", 1)
						r.AnnotatedEventf(&corev1.Pod{}, nil, corev1.EventTypeNormal, "Fine", "message %d", 2)
						r.Event(&corev1.Pod{}, corev1.EventTypeWarning, "Wrong", "message")
					}
					time.Sleep(2 * time.Second)
				}
				close(recorded.Events)
				normal, warnings := 0, 0
				for text := range recorded.Events {
					if text[0] == 'N' {
						normal++
					} else {
						warnings++
					}
				}
				if normal != c.want || warnings != 200 {
					t.Errorf("%d normal events and %d warnings, want %d and 200", normal, warnings, c.want)
				}
			})
		})
	}
}
