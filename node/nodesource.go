package node

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// NodeSource reports what becomes of Nodes in the API. Where many NodeControllers
// run in one process it is what one watch of the API feeds, so that not each of
// them has its own.
type NodeSource interface {
	// Subscribe has f called with the Node of that name as it is, if there is
	// one, and then whenever it has changed or was deleted (with its last form, or no
	// more of it than its name and UID), until undo is called. What changed several times may be reported once; a call
	// that comes twice, or late, does no harm. f does not block, keeps the node,
	// and does not change it, nor may the caller.
	Subscribe(name string, f func(node *corev1.Node, deleted bool)) (undo func())
}

// WithNodePatience has a registration that the API server refuses tried again, a
// minute apart, where by default Run returns an error: for one of many nodes,
// whose process does not end with it.
func WithNodePatience() NodeControllerOpt {
	return func(n *NodeController) error {
		n.patient = true
		return nil
	}
}

// WithNodeSource has the controller hear of its Node from source; by default it
// watches the API itself.
func WithNodeSource(source NodeSource) NodeControllerOpt {
	return func(n *NodeController) error {
		if source == nil {
			return errdefs.InvalidInput("the node source option was given none: pass one, or leave the option out to have the controller watch its node")
		}
		n.source = source
		return nil
	}
}
