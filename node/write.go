package node

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// write writes what differs from the API's node.
func (n *NodeController) write(ctx context.Context, wanted *corev1.Node) error {
	now := metav1.Now()
	read := n.current
	next, err := n.writeMetadata(ctx, wanted, now)
	for try := 1; apierrors.IsConflict(err) && try < maxConflicts; try++ {
		if read, err = n.Node(ctx, true); err != nil {
			return err
		}
		n.take(read)
		read = n.current
		next, err = n.writeMetadata(ctx, wanted, now)
	}
	if err = n.tolerate(ctx, err); err != nil {
		return fmt.Errorf("cannot update node %s: %w", n.name, err)
	}
	if n.current != read { // with a status that others may have changed, which is not to be undone
		if next, err = mergeNode(n.current, wanted, n.health, now); err != nil {
			return err
		}
	}

	due := n.lease == nil || now.Sub(n.written) >= reportInterval
	before := n.current
	differs := !sameNodeStatus(&before.Status, &next.Status)
	var write uint64
	if differs {
		write = hashOfWrite(&before.Status, &next.Status)
	}
	if !due && (!differs || write == n.noEffect) {
		return nil
	}
	result, err := patchNodeStatus(ctx, n.nodes, before, &next.Status)
	if err != nil {
		return fmt.Errorf("cannot update the status of node %s: %w", n.name, err)
	}
	n.take(result)
	n.written = now.Time
	n.noEffect = 0
	if differs && sameNodeStatus(&before.Status, &result.Status) {
		n.noEffect = write
	}
	return nil
}

// hashOfWrite identifies a change of a status, but for the times of its conditions. It is not 0.
func hashOfWrite(before, after *corev1.NodeStatus) uint64 {
	hash := fnv.New64a()
	encoder := json.NewEncoder(hash)
	for _, status := range []*corev1.NodeStatus{before, after} {
		timeless := *status
		timeless.Conditions = slices.Clone(status.Conditions)
		for i := range timeless.Conditions {
			timeless.Conditions[i].LastHeartbeatTime, timeless.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
		}
		_ = encoder.Encode(&timeless) // a hash takes all, and nodePatch reports what cannot be encoded
	}
	return max(hash.Sum64(), 1)
}

// behind reports whether the API's answer to a write has something that has to be written: a patch
// goes by the Node as it was read, which others may have changed since, or made again, and the
// watch does not show what the answer has. What is refused is not written again for that.
func (n *NodeController) behind(wanted *corev1.Node) bool {
	if n.itself {
		wanted = asItself(n.current, wanted)
	}
	next, err := mergeNode(n.current, wanted, n.health, metav1.Now())
	if err != nil {
		return false
	}
	patch, err := nodeMetadataPatch(n.current, next)
	return err == nil && patch != nil && n.refusal == "" || !sameNodeStatus(&n.current.Status, &next.Status)
}
