package vkubelet

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

const (
	// DefaultPingInterval is how often the provider is pinged, and how often
	// the node's status is written where there is no lease.
	DefaultPingInterval = node.DefaultPingInterval

	// DefaultStatusUpdateInterval is how often the node's status is compared
	// with what the API has, where there is a lease.
	DefaultStatusUpdateInterval = node.DefaultStatusUpdateInterval
)

// NodeOpt configures a Node.
type NodeOpt func(*Node) error

// WithNodeDisableLease, given true, lets the node live without a lease: then
// its status is its heartbeat. The default is false.
func WithNodeDisableLease(disable bool) NodeOpt {
	return func(n *Node) error {
		n.disableLease = disable
		return nil
	}
}

// WithNodeLease shapes the node's lease after a template, which is copied: its
// labels and annotations are put on the lease whenever it is written, and its
// leaseDurationSeconds, if set, is the lease's (of which a quarter is the
// interval of the renewals). Kubernetes looks for a node's lease under the
// node's name in kube-node-lease, so the template's name and namespace must be
// empty or those. Holder, renew time and owner are not the template's to say.
// A nil template is the default: no labels, 40 seconds.
func WithNodeLease(lease *coordinationv1.Lease) NodeOpt {
	return func(n *Node) error {
		n.lease = lease.DeepCopy()
		return nil
	}
}

// WithNodePingInterval sets how often the provider is pinged; the default, also for zero, is
// DefaultPingInterval. It must not be negative.
func WithNodePingInterval(interval time.Duration) NodeOpt {
	return controllerOption(node.WithNodePingInterval(interval))
}

// WithNodeStatusUpdateInterval sets how often the status is compared with the
// API's where there is a lease; the default, also for zero, is DefaultStatusUpdateInterval. It
// must not be negative.
func WithNodeStatusUpdateInterval(interval time.Duration) NodeOpt {
	return controllerOption(node.WithNodeStatusUpdateInterval(interval))
}

func controllerOption(opt node.NodeControllerOpt) NodeOpt {
	return func(n *Node) error {
		n.options = append(n.options, opt)
		return nil
	}
}
