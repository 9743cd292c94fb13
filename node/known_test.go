package node

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// What the controller knows of its node follows the API without requests, but where
// there is none, or a fresh one is asked for.
func TestKnownNode(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		reads := func() (count int) {
			for _, action := range r.api.Actions() {
				if action.GetVerb() == "get" && action.GetResource() == fakeapi.Nodes {
					count++
				}
			}
			r.api.ClearActions()
			return count
		}
		color := func(fresh bool) string {
			node, err := r.nc.Node(t.Context(), fresh)
			if err != nil {
				t.Error(err)
				return ""
			}
			return node.Labels["color"]
		}
		nc, err := NewNodeController(r, r.node, r.api.CoreV1().Nodes())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Node(t.Context(), false); !errdefs.IsNotFound(err) {
			t.Errorf("before it is registered: %v", err)
		}
		r.start()
		if _, err := r.api.CoreV1().Nodes().Patch(t.Context(), "vk", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"color":"blue"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		reads()
		want(t, "label", color(false), "blue")
		want(t, "reads", reads(), 0)
		want(t, "fresh label", color(true), "blue")
		want(t, "reads of a fresh one", reads(), 1)
		var first *corev1.Node
		if first, err = r.nc.Node(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if err := r.api.CoreV1().Nodes().Delete(t.Context(), "vk", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		synctest.Wait()
		second, err := r.nc.Node(t.Context(), false)
		if err != nil || second.UID == first.UID {
			t.Errorf("after it was registered again: %v, %v", second, err)
		}
	})
}
