package node

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

type leaseConfig struct {
	client          coordinationv1client.LeaseInterface
	durationSeconds int32
	renewInterval   time.Duration
}

// renewLease keeps the node's lease fresh, whatever the provider's health: the
// lease says that this process lives, the Ready condition how it is.
func (n *NodeController) renewLease(ctx context.Context) {
	controller := lease.NewController(clock.RealClock{}, leaseClientset{client: n.lease.client}, n.name,
		n.lease.durationSeconds, nil, n.lease.renewInterval, n.name, corev1.NamespaceNodeLease, n.ownLease)
	controller.Run(ctx)
}

// ownLease ties the lease to the Node, with which it is to go.
func (n *NodeController) ownLease(l *coordinationv1.Lease) error {
	uid, _ := n.uid.Load().(types.UID)
	if uid == "" {
		return errors.New("the node has no UID yet")
	}
	l.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(),
		Kind:       "Node",
		Name:       n.name,
		UID:        uid,
	}}
	return nil
}

// leaseClientset is a client set with just the one client that the lease
// controller of component-helpers asks it for.
type leaseClientset struct {
	kubernetes.Interface
	coordinationv1client.CoordinationV1Interface
	client coordinationv1client.LeaseInterface
}

func (c leaseClientset) CoordinationV1() coordinationv1client.CoordinationV1Interface { return c }

func (c leaseClientset) Leases(string) coordinationv1client.LeaseInterface { return c.client }

// RESTClient is in both of the embedded interfaces; nobody asks for it.
var _ kubernetes.Interface = leaseClientset{}
