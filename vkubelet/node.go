package vkubelet

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// NodeProvider is what a provider implements to have a say in the Node object.
type NodeProvider = node.NodeProvider

// NaiveNodeProvider is a NodeProvider that is always well and has nothing to
// say.
type NaiveNodeProvider = node.NaiveNodeProvider

// Node registers a Node object, and keeps it alive and true to what its
// provider says of it. Make one with NewNode.
type Node struct {
	controller *node.NodeController

	disableLease bool
	lease        *coordinationv1.Lease // nil: the usual one
	options      []node.NodeControllerOpt
}

// NewNode makes a Node. A nil provider is the naive one. The node is copied; its
// name is required. The clients are those of the namespace kube-node-lease and
// of the nodes; leases can be nil only with WithNodeDisableLease(true). Options
// apply in order. What cannot work is an error of class InvalidInput.
func NewNode(provider NodeProvider, obj *corev1.Node, leases coordinationv1client.LeaseInterface, nodes corev1client.NodeInterface, opts ...NodeOpt) (*Node, error) {
	n := &Node{}
	for _, opt := range opts {
		if err := opt(n); err != nil {
			return nil, err
		}
	}
	if !n.disableLease {
		option, err := n.leaseOption(obj, leases)
		if err != nil {
			return nil, err
		}
		n.options = append(n.options, option)
	}
	controller, err := node.NewNodeController(provider, obj, nodes, n.options...)
	if err != nil {
		return nil, err
	}
	n.controller = controller
	return n, nil
}

func (n *Node) leaseOption(obj *corev1.Node, leases coordinationv1client.LeaseInterface) (node.NodeControllerOpt, error) {
	if leases == nil {
		return nil, errdefs.InvalidInput("the node was given no client for its lease: pass one, or WithNodeDisableLease(true) to live without")
	}
	duration := int32(node.DefaultLeaseDuration)
	if n.lease != nil {
		if obj != nil && n.lease.Name != "" && n.lease.Name != obj.Name {
			return nil, errdefs.InvalidInputf("a lease named %s would not keep node %s alive: leave the name empty, or make it the node's", n.lease.Name, obj.Name)
		}
		if n.lease.Namespace != "" && n.lease.Namespace != corev1.NamespaceNodeLease {
			return nil, errdefs.InvalidInputf("a lease in namespace %s would not keep a node alive: leave the namespace empty, or make it %s", n.lease.Namespace, corev1.NamespaceNodeLease)
		}
		if seconds := n.lease.Spec.LeaseDurationSeconds; seconds != nil {
			duration = *seconds
		}
		leases = templateLeases{LeaseInterface: leases, template: n.lease}
	}
	interval := time.Duration(float64(duration) * node.DefaultRenewIntervalFraction * float64(time.Second))
	return node.WithNodeEnableLeaseV1WithRenewInterval(leases, duration, interval), nil
}

// Run registers the node, waiting for an API server that is away, and keeps it
// until ctx ends, and returns nil. The Node stays as it is then: the control plane
// takes it for not ready once it misses the lease, or without one the status.
// An error means that the node could not be registered: the API server refused
// it, or ctx ended before. It can be called once.
func (n *Node) Run(ctx context.Context) error { return n.controller.Run(ctx) }

// Ready returns a channel that is closed once the node is registered.
func (n *Node) Ready() <-chan struct{} { return n.controller.Ready() }
