package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Some providers notify of the Node as they have read it, with what the control plane had set then: that is not kept
// on it once the control plane removes it.
func TestTaintsOfTheControlPlaneAreItsOwn(t *testing.T) {
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	uninitialized := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "example.com/virtual", Effect: corev1.TaintEffectNoSchedule}
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.node.Spec.Taints = []corev1.Taint{own, uninitialized}
		r.start(r.withLease())
		taints := func() (keys []string) {
			for _, taint := range r.api.Node("vk").Spec.Taints {
				keys = append(keys, taint.Key)
			}
			return keys
		}
		wantList(t, "taints of a new node", taints(), own.Key, uninitialized.Key)
		r.api.ChangeNode("vk", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{own, notReady} })
		pass(time.Minute)
		wantList(t, "taints once it is initialized", taints(), own.Key, notReady.Key)
		r.notify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{own, notReady}}})
		pass(time.Minute)
		r.api.ChangeNode("vk", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{own} })
		pass(10 * time.Minute)
		wantList(t, "taints once it is ready", taints(), own.Key)
		r.api.ChangeNode("vk", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{notReady} })
		r.notify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{own}}})
		pass(10 * time.Minute)
		wantList(t, "taints when it is not ready again", taints(), notReady.Key, own.Key)

		outOfService := corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}
		r.notify(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{own, outOfService, notReady}}})
		pass(time.Minute)
		register := func() {
			if err := r.api.CoreV1().Nodes().Delete(t.Context(), "vk", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
		}
		register()
		wantList(t, "taints when it is registered again", taints(), own.Key)
		r.notify(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{own, uninitialized}}})
		pass(time.Minute)
		register()
		wantList(t, "taints when it is registered again, with one that it was given", taints(), own.Key, uninitialized.Key)
	})
}
