package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node returns the Node, for reading only. Without fresh it is as the controller knows
// it, which watches it, and read from the API server only where it knows none; with
// fresh it is always read. An error of class NotFound says that there is none. Node is
// safe for concurrent use, and may be called before Run.
func (n *NodeController) Node(ctx context.Context, fresh bool) (*corev1.Node, error) {
	if known := n.known.Load(); known != nil && !fresh {
		return known, nil
	}
	node, err := n.nodes.Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read node %s: %w", n.name, err)
	}
	return node, nil
}
