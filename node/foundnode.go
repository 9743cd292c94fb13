package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// foundNode is the Node as a Claim has read it.
type foundNode struct {
	node *corev1.Node // nil if there was none
	at   time.Time    // when the request began
}

// fresh is how old what was read of the Node may be to go by it.
const fresh = time.Second

// read returns the Node as the API has it or, at the start, as the claim has just read it: what
// has changed since then shows when the Node is written.
func (n *NodeController) read(ctx context.Context) (*corev1.Node, error) {
	if n.claim != nil {
		found := n.claim.found.Swap(nil)
		switch {
		case found == nil || time.Since(found.at) >= fresh:
		case found.node == nil:
			return nil, apierrors.NewNotFound(corev1.Resource("nodes"), n.name)
		default:
			return found.node, nil
		}
	}
	return n.nodes.Get(ctx, n.name, metav1.GetOptions{})
}
