package node

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	controller := lease.NewController(clock.RealClock{}, leaseClientset{client: &outageWatcher{LeaseInterface: n.lease.client, over: n.noteReturn}}, n.name,
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

// noteReturn has the node looked at, since the control plane may have given it
// up while the API server was away.
func (n *NodeController) noteReturn() {
	select {
	case n.returned <- struct{}{}:
	default: // it is about to be
	}
}

// outageWatcher notices from the lease's fate when the API server is back. The
// lease controller makes one call at a time.
type outageWatcher struct {
	coordinationv1client.LeaseInterface
	away bool
	over func()
}

func (w *outageWatcher) Update(ctx context.Context, l *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l, err := w.LeaseInterface.Update(ctx, l, opts)
	w.note(err)
	return l, err
}

func (w *outageWatcher) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	l, err := w.LeaseInterface.Get(ctx, name, opts)
	if err != nil {
		w.note(err)
	}
	return l, err
}

func (w *outageWatcher) note(err error) {
	switch {
	case err == nil && w.away:
		w.away = false
		w.over()
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		w.away = true
	}
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
