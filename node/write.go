package node

import (
	"context"
	"fmt"

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
	if !due && sameNodeStatus(&n.current.Status, &next.Status) {
		return nil
	}
	result, err := patchNodeStatus(ctx, n.nodes, n.current, &next.Status)
	if err != nil {
		return fmt.Errorf("cannot update the status of node %s: %w", n.name, err)
	}
	n.take(result)
	n.written = now.Time
	return nil
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
