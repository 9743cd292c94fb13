package interlink

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// A server that knows no status for a moment still gets the deletion, with the whole pod, by whose
// containers a plugin may go.
func TestADeletionWithoutAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deleted []corev1.Pod
		cluster := grouptest.NewCluster("home")
		p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, grouptest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/delete" {
				var pod corev1.Pod
				if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
					t.Error(err)
				}
				deleted = append(deleted, pod)
			}
			_, _ = io.WriteString(w, "null")
		})).Transport(t))
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		pod, seconds := newPod("gone"), int64(7)
		pod.DeletionGracePeriodSeconds = &seconds
		if err := p.DeletePod(t.Context(), pod); !errdefs.IsOnlyNotFound(err) {
			t.Errorf("the deletion returns %v", err)
		}
		if len(deleted) != 1 || deleted[0].UID != pod.UID || len(deleted[0].Spec.Containers) != 1 || *deleted[0].DeletionGracePeriodSeconds != 7 {
			t.Errorf("deleted: %v", deleted)
		}
	})
}
