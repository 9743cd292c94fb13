package node

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// conditionOf is the status of a condition of the Node, or empty.
func (r *nodeRig) conditionOf(kind corev1.NodeConditionType) corev1.ConditionStatus {
	conditions := r.api.Node("vk").Status.Conditions
	i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return ""
	}
	return conditions[i].Status
}

// The Node has an added condition while it is True, regardless of what the provider reports of its
// Node, and then a False one. A process that comes after an earlier one takes it back.
func TestWithNodeConditions(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		var status atomic.Pointer[corev1.ConditionStatus]
		set := func(s corev1.ConditionStatus) { status.Store(&s) }
		set(corev1.ConditionFalse)
		added := WithNodeConditions(func() []corev1.NodeCondition {
			return []corev1.NodeCondition{{Type: "Added", Status: *status.Load(), Reason: "Test"}, {Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
		})
		r.start(r.withLease(), added)
		step := func(what string, next, wanted corev1.ConditionStatus) {
			t.Helper()
			set(next)
			pass(time.Minute)
			want(t, what, r.conditionOf("Added"), wanted)
			r.wantReady("True")
		}
		step("what was never true", corev1.ConditionFalse, "")
		step("true", corev1.ConditionTrue, corev1.ConditionTrue)
		r.notify(r.api.Node("vk"))
		step("not true any more", corev1.ConditionFalse, corev1.ConditionFalse)
		step("still not", corev1.ConditionFalse, corev1.ConditionFalse)
		step("true once more", corev1.ConditionTrue, corev1.ConditionTrue)
		r.end()
		set(corev1.ConditionFalse)
		r.launch(func(nc *NodeController) error { return nil }, r.withLease(), added)
		pass(time.Second)
		want(t, "after a restart", r.conditionOf("Added"), corev1.ConditionFalse)
	})
}
