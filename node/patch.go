package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// sameNode compares of two Nodes what a controller writes, but for the heartbeats.
func sameNode(a, b *corev1.Node) bool {
	return a == b || equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) && sameNodeStatus(&a.Status, &b.Status)
}

// sameNodeStatus compares two statuses but for the heartbeats. What each node has is compared by type:
// reflection takes ninety allocations more.
func sameNodeStatus(a, b *corev1.NodeStatus) bool {
	return slices.EqualFunc(a.Conditions, b.Conditions, sameNodeCondition) &&
		maps.EqualFunc(a.Capacity, b.Capacity, resource.Quantity.Equal) && maps.EqualFunc(a.Allocatable, b.Allocatable, resource.Quantity.Equal) &&
		equality.Semantic.DeepEqual(otherNodeStatus(a), otherNodeStatus(b))
}

// sameNodeCondition compares two conditions but for their times.
func sameNodeCondition(a, b corev1.NodeCondition) bool {
	a.LastHeartbeatTime, a.LastTransitionTime = metav1.Time{}, metav1.Time{}
	b.LastHeartbeatTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return a == b
}

// otherNodeStatus is a status without what sameNodeStatus itself compares.
func otherNodeStatus(status *corev1.NodeStatus) *corev1.NodeStatus {
	other := *status
	other.Conditions, other.Capacity, other.Allocatable = nil, nil, nil
	return &other
}

// nodeMetadataPatch is the patch for labels, annotations and spec, or nil. The
// list of taints is one value to the API: where it changes the patch holds the
// resource version, so that it does not undo what others did meanwhile.
func nodeMetadataPatch(current, next *corev1.Node) ([]byte, error) {
	if maps.Equal(current.Labels, next.Labels) && maps.Equal(current.Annotations, next.Annotations) && equality.Semantic.DeepEqual(current.Spec, next.Spec) {
		return nil, nil // as nodePatch would find, by encoding both
	}
	before := corev1.Node{Spec: current.Spec}
	before.Labels, before.Annotations = current.Labels, current.Annotations
	after := corev1.Node{Spec: next.Spec}
	after.Labels, after.Annotations = next.Labels, next.Annotations
	if !equality.Semantic.DeepEqual(current.Spec.Taints, next.Spec.Taints) {
		after.ResourceVersion = current.ResourceVersion
	}
	return nodePatch(&before, &after)
}

// nodePatch is the strategic merge patch from one form to another, or nil.
func nodePatch(before, after *corev1.Node) ([]byte, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the present node: %w", err)
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the new node: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("cannot compute the difference of two nodes: %w", err)
	}
	if string(patch) == "{}" {
		return nil, nil
	}
	return patch, nil
}

// patchNodeStatus writes what differs between the node's status and next, and
// returns the API's node after that.
func patchNodeStatus(ctx context.Context, nodes corev1client.NodeInterface, current *corev1.Node, next *corev1.NodeStatus) (*corev1.Node, error) {
	patch, err := nodeStatusPatch(&current.Status, next)
	if err != nil || patch == nil {
		return current, err
	}
	return nodes.Patch(ctx, current.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// nodeStatusPatch is the patch for the status, or nil. Addresses are replaced
// as a whole: the API merges them by type, of which there can be two.
func nodeStatusPatch(current, next *corev1.NodeStatus) ([]byte, error) {
	before, after := *current, *next
	before.Addresses, after.Addresses = nil, nil
	patch, err := nodePatch(&corev1.Node{Status: before}, &corev1.Node{Status: after})
	if err != nil || equality.Semantic.DeepEqual(current.Addresses, next.Addresses) {
		return patch, err
	}
	var whole struct {
		Status map[string]any `json:"status"`
	}
	if patch != nil {
		if err := json.Unmarshal(patch, &whole); err != nil {
			return nil, fmt.Errorf("cannot read a patch: %w", err)
		}
	}
	if whole.Status == nil {
		whole.Status = map[string]any{}
	}
	addresses := []any{map[string]string{"$patch": "replace"}}
	for _, address := range next.Addresses {
		addresses = append(addresses, address)
	}
	whole.Status["addresses"] = addresses
	return json.Marshal(whole)
}
