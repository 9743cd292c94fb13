package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// newClaim returns this process's claim to its node. With adopt, or with --adopt-node,
// the Node may belong to another provider.
func (v *virtualNode) newClaim(adopt bool) (*node.Claim, error) {
	cfg := node.ClaimConfig{
		Node:     v.nodeName,
		Nodes:    v.client.CoreV1().Nodes(),
		Provider: v.options.provider,
		Adopt:    adopt || v.adoptNode,
		Pods:     v.boundPods,
	}
	if v.enableNodeLease {
		cfg.Leases = nodeutil.NodeLeaseV1Client(v.client)
		cfg.Identity = v.identity
	}
	return node.NewClaim(cfg)
}

// boundPods lists the pods that are bound to the node.
func (v *virtualNode) boundPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := v.client.CoreV1().Pods(v.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", v.nodeName).String()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// nodeIdentity distinguishes this process from others that act for its nodes. Those that
// elect a leader, or share the nodes, are of one group.
func (o *options) nodeIdentity() node.Identity {
	identity := node.Identity{ID: newProcessID(o.podUID).String(), Ended: processHasEnded(o.podUID)}
	switch {
	case o.leaderElect:
		identity.Group = fmt.Sprintf("leader %s/%s", o.electNamespace, leaderLease(o.nodeName))
	case o.shards > 0:
		identity.Group = fmt.Sprintf("shards %s/%s", o.electNamespace, o.nodeName)
	}
	return identity
}
