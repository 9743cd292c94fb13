//go:build !race

package nodeutil

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
)

// What the write of an event allocates, beside that of client-go's own sink.
func TestAllocations(t *testing.T) {
	event := anEvent()
	answer := event.DeepCopy()
	answer.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "virtual-kubelet", FieldsV1: metav1.NewFieldsV1("{}")}}
	client := answering(t, inProtobuf, http.StatusCreated, answer, func(*http.Request) {})
	create := func(sink record.EventSink) func() {
		return func() {
			if _, err := sink.Create(event); err != nil {
				t.Fatal(err)
			}
		}
	}
	allocs.Compare(t,
		allocs.Operation{Name: "event", Do: create(newEventSink(client))},
		allocs.Operation{Name: "event-of-client-go", Do: create(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})},
	)
}
