package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// claimed returns a claim to the node of the rig that this process has acquired.
func (r *nodeRig) claimed() *Claim {
	r.t.Helper()
	claim, err := NewClaim(ClaimConfig{
		Node: "vk", Nodes: r.api.CoreV1().Nodes(),
		Leases: r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease), Identity: Identity{ID: "us"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := claim.Acquire(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return claim
}

// requests counts the requests so far, and forgets them.
func (r *nodeRig) requests() map[string]int {
	count := map[string]int{}
	for _, action := range r.api.Actions() {
		count[action.GetVerb()+" "+action.GetResource().Resource]++
	}
	r.api.ClearActions()
	return count
}

// What the claim has read or written a moment ago is neither read nor written again.
func TestRequestsOfAStart(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(WithNodeClaim(r.claimed()), WithNodeEnableLeaseV1(r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease), 40))
		want(t, "of the first start", r.requests(), map[string]int{
			"get leases": 1, "create leases": 1, "update leases": 1, // for its owner
			"get nodes": 1, "create nodes": 1, "list nodes": 1, "watch nodes": 1,
		})
		claimed := r.lease().Spec.RenewTime
		pass(10 * time.Second)
		want(t, "the lease was renewed", claimed.Before(r.lease().Spec.RenewTime), true)
		r.end()
		r.requests()

		r.start(WithNodeClaim(r.claimed()), WithNodeEnableLeaseV1(r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease), 40))
		want(t, "of the next", r.requests(), map[string]int{
			"get leases": 1, "update leases": 1, "get nodes": 1, "patch nodes": 1, "list nodes": 1, "watch nodes": 1,
		})
		claimed = r.lease().Spec.RenewTime
		pass(10 * time.Second)
		want(t, "the lease was renewed", claimed.Before(r.lease().Spec.RenewTime), true)
	})
}

// A lease of another duration than the node's is written at once.
func TestLeaseOfAnotherDuration(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(WithNodeClaim(r.claimed()), WithNodeEnableLeaseV1(r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease), 20))
		want(t, "duration", ptr.Deref(r.lease().Spec.LeaseDurationSeconds, 0), 20)
	})
}

// What others do between the claim and the registration is not lost.
func TestChangesAfterTheClaim(t *testing.T) {
	label := func(r *nodeRig) { r.api.ChangeNode("vk", func(n *corev1.Node) { n.Labels["of"] = "others" }) }
	for name, test := range map[string]struct {
		there  bool // the Node, at the claim
		change func(r *nodeRig)
		label  string
	}{
		"the Node is made":          {false, func(r *nodeRig) { r.add(); label(r) }, "others"},
		"the Node is changed":       {true, label, "others"},
		"the Node is deleted":       {true, (*nodeRig).remove, ""},
		"the Node is made again":    {true, func(r *nodeRig) { r.remove(); r.add(); label(r) }, "others"},
		"the Node is changed later": {true, func(r *nodeRig) { pass(time.Minute); label(r) }, "others"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				if test.there {
					r.add()
				}
				claim := r.claimed()
				test.change(r)
				r.launch(WithNodeClaim(claim), WithNodeEnableLeaseV1(r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease), 40))
				pass(time.Minute)
				r.wantReady("True")
				want(t, "taints", r.api.Node("vk").Spec.Taints, r.node.Spec.Taints)
				want(t, "label", r.api.Node("vk").Labels["of"], test.label)
				want(t, "owner", r.lease().OwnerReferences, ownedByNode("vk", r.api.Node("vk").UID))
			})
		})
	}
}

// add makes the Node as somebody else does.
func (r *nodeRig) add() {
	r.t.Helper()
	node := &corev1.Node{}
	node.Name, node.Labels = "vk", map[string]string{"type": "virtual-kubelet"}
	if _, err := r.api.CoreV1().Nodes().Create(r.t.Context(), node, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// remove deletes the Node.
func (r *nodeRig) remove() {
	r.t.Helper()
	if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
		r.t.Fatal(err)
	}
}
