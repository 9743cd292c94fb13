//go:build !race

package nodeutil

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
)

// What the write of an event and the renewal of a lease allocate, beside those of client-go.
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
	inAPI := aLease()
	inAPI.ManagedFields = answer.ManagedFields
	leases := answering(t, inProtobuf, http.StatusOK, inAPI, func(*http.Request) {})
	renew := func(leases coordinationv1client.LeaseInterface) func() {
		lease := aLease()
		return func() {
			if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	allocs.Compare(t,
		allocs.Operation{Name: "lease", Do: renew(newNodeLeases(leases))},
		allocs.Operation{Name: "lease-of-client-go", Do: renew(NodeLeaseV1Client(leases))},
		allocs.Operation{Name: "event", Do: create(newEventSink(client))},
		allocs.Operation{Name: "event-of-client-go", Do: create(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})},
	)
}
