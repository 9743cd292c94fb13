package node

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// conditionOf is the status of a condition of the Node, or empty.
func (r *nodeRig) conditionOf(kind corev1.NodeConditionType) corev1.ConditionStatus {
	conditions := r.api.node("vk").Status.Conditions
	i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return ""
	}
	return conditions[i].Status
}

// The Node says that many pods are missing as long as they are, and what the provider
// says of its Node does not change that. A process that comes after takes it back.
func TestSetCondition(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		nc := r.nc
		nc.SetCondition(PodsMissingCondition(0, 5))
		pass(time.Minute)
		want(t, "what was never true", r.conditionOf(NodePodsMissing), "")
		nc.SetCondition(PodsMissingCondition(4, 5))
		pass(time.Second)
		want(t, "condition", r.conditionOf(NodePodsMissing), corev1.ConditionTrue)
		r.wantReady("True")
		r.notify(r.api.node("vk"))
		pass(time.Minute)
		nc.SetCondition(PodsMissingCondition(0, 5))
		pass(time.Second)
		want(t, "condition then", r.conditionOf(NodePodsMissing), corev1.ConditionFalse)
		pass(time.Minute)
		want(t, "condition later", r.conditionOf(NodePodsMissing), corev1.ConditionFalse)
		nc.SetCondition(PodsMissingCondition(4, 5))
		pass(time.Second)
		want(t, "condition once more", r.conditionOf(NodePodsMissing), corev1.ConditionTrue)
		r.end()
		r.launch(func(nc *NodeController) error { nc.SetCondition(PodsMissingCondition(0, 0)); return nil }, r.withLease())
		pass(time.Second)
		want(t, "condition after a restart", r.conditionOf(NodePodsMissing), corev1.ConditionFalse)
	})
}
