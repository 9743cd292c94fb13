package vkubelet

import (
	"context"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/retry"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// UpdateNodeLease renews lease: it writes it with the present time as its
// renewTime, and returns it as the API has it then, for the next time. A lease
// that does not exist is created. If somebody else has written it meanwhile, the
// spec of the given one wins, and labels and annotations of both are kept. A
// Node does all that by itself; this is for those that run a node without one.
func UpdateNodeLease(ctx context.Context, leases coordinationv1client.LeaseInterface, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if lease == nil || lease.Name == "" {
		return nil, errdefs.InvalidInput("the lease to renew has no name: set metadata.name to the node's")
	}
	wanted := lease.DeepCopy()
	wanted.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	var result *coordinationv1.Lease
	var err error
	if wanted.ResourceVersion != "" { // saves reading it first
		result, err = leases.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if wanted.ResourceVersion == "" || raced(err) {
		err = retry.OnError(retry.DefaultRetry, raced, func() (err error) {
			result, err = writeLease(ctx, leases, wanted)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot renew lease %s: %w", wanted.Name, err)
	}
	return result, nil
}

// raced reports whether somebody else wrote, created or deleted the lease between
// our two looks at it.
func raced(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// writeLease creates the lease, or lays it over the one that exists.
func writeLease(ctx context.Context, leases coordinationv1client.LeaseInterface, wanted *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	current, err := leases.Get(ctx, wanted.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := wanted.DeepCopy()
		fresh.ResourceVersion, fresh.UID = "", ""
		return leases.Create(ctx, fresh, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, err
	}
	next := overlayLease(current, wanted)
	next.Spec = *wanted.Spec.DeepCopy()
	if len(wanted.OwnerReferences) > 0 {
		next.OwnerReferences = wanted.OwnerReferences
	}
	return leases.Update(ctx, next, metav1.UpdateOptions{})
}

// templateLeases puts the labels and annotations of a template on each lease
// that is written through it.
type templateLeases struct {
	coordinationv1client.LeaseInterface
	template *coordinationv1.Lease
}

// Create implements LeaseInterface.
func (l templateLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Create(ctx, overlayLease(lease, l.template), opts)
}

// Update implements LeaseInterface.
func (l templateLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Update(ctx, overlayLease(lease, l.template), opts)
}

// overlayLease returns a copy of lease that has the labels and annotations of
// the other one as well.
func overlayLease(lease, with *coordinationv1.Lease) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	lease.Labels = overlay(lease.Labels, with.Labels)
	lease.Annotations = overlay(lease.Annotations, with.Annotations)
	return lease
}

func overlay(onto, with map[string]string) map[string]string {
	if onto == nil {
		return maps.Clone(with)
	}
	maps.Copy(onto, with)
	return onto
}

var _ coordinationv1client.LeaseInterface = templateLeases{}
