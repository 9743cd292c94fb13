package nodeutil

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
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
				recordedTotal, limited := countOf(t, r.writer.metrics.recorded.WithLabelValues("Normal")), countOf(t, r.writer.metrics.limited)
				if recordedTotal != float64(c.want) || limited != float64(600-c.want) {
					t.Errorf("%v events are counted as recorded and %v as dropped, want %d of 600", recordedTotal, limited, c.want)
				}
				if normal != c.want || warnings != 200 {
					t.Errorf("%d normal events and %d warnings, want %d and 200", normal, warnings, c.want)
				}
			})
		})
	}
}

func countOf(t *testing.T, counter prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := counter.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// An event that the API server does not take was not written.
func TestWrittenEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		fakeapi.React(&client.Fake, "create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
			event := action.(clienttesting.CreateAction).GetObject().(*corev1.Event)
			if event.Reason == "Refused" {
				return true, nil, apierrors.NewForbidden(corev1.Resource("events"), event.Name, nil)
			}
			return false, nil, nil
		})
		w := newEventWriter(-1, 1)
		stop := w.start(client)
		r := &lateRecorder{writer: w, node: "vk"}
		for _, reason := range []string{"Fine", "Refused", "Fine", "Other"} {
			r.Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}, corev1.EventTypeWarning, reason, "message")
			time.Sleep(time.Second) // their names are made of the time
		}
		synctest.Wait()
		stop()
		if n := countOf(t, w.metrics.written); n != 3 {
			t.Errorf("%v events were written, want 3: two new ones, and one that has occurred again", n)
		}
		if n := countOf(t, w.metrics.recorded.WithLabelValues("Warning")); n != 4 {
			t.Errorf("%v events were recorded, want 4", n)
		}
	})
}
