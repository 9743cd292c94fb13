package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// What others write into the status between the claim and the registration stays, and what this
// process has to repair of it is repaired with the registration, not a minute later.
func TestStatusChangesAfterTheClaim(t *testing.T) {
	foreign := func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Foreign", Status: corev1.ConditionTrue})
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "disk", DevicePath: "/dev/disk"}}
		n.Status.Capacity["example.com/foreign"] = resource.MustParse("1")
	}
	lost := func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
	}
	for name, outdated := range map[string]bool{"labels and all": true, "only the status": false} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				r.start(r.withLease())
				r.end()
				if outdated {
					r.node.Labels["new"] = "1"
				}
				pass(40 * time.Second)
				claim := r.claimed()
				r.api.ChangeNode("vk", func(n *corev1.Node) { foreign(n); lost(n); n.Labels["type"] = "other" })
				r.start(WithNodeClaim(claim), r.withLease())
				node := r.api.Node("vk")
				r.wantReady("True KubeletReady")
				want(t, "label", node.Labels["type"], "virtual-kubelet")
				want(t, "conditions", len(node.Status.Conditions), 2)
				want(t, "volumes", len(node.Status.VolumesAttached), 1)
				want(t, "capacities", len(node.Status.Capacity), 2)
			})
		})
	}
}

// A Node that was made again after the claim is complete once it is registered.
func TestNodeMadeAgainAfterTheClaim(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.end()
		pass(40 * time.Second)
		before := r.api.Node("vk")
		claim := r.claimed()
		r.remove()
		r.add()
		r.start(WithNodeClaim(claim), r.withLease())
		node := r.api.Node("vk")
		want(t, "another node", node.UID != before.UID, true)
		r.wantReady("True KubeletReady")
		want(t, "taints", node.Spec.Taints, before.Spec.Taints)
		want(t, "annotations", node.Annotations, before.Annotations)
		want(t, "capacity", node.Status.Capacity, before.Status.Capacity)
		want(t, "owner", r.lease().OwnerReferences, ownedByNode("vk", node.UID))
	})
}
