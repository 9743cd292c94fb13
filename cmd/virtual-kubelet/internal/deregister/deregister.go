// Package deregister removes from a cluster what nodes of this program have left there, and
// nothing else: it looks first, refuses where a process may act for a node still, and
// deletes objects only as it has seen them.
package deregister

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/doctor"
)

// Config is what there is to remove, and how.
type Config struct {
	// Client needs the rights to get and delete nodes and leases, to list and delete
	// certificate signing requests, and to list pods. Required.
	Client kubernetes.Interface
	// Skew is by how much the API server's clock is ahead of this machine's.
	Skew time.Duration
	// Nodes are the nodes. A Node of another provider is refused; an empty provider means
	// that every virtual kubelet's will do.
	Nodes []doctor.Node
	// ServiceAccount is an account, as NAMESPACE/NAME, that has made certificate signing
	// requests for the nodes, beside the nodes themselves. It may be empty.
	ServiceAccount string
	// Elections has the leases of --leader-elect or --shards, which are removed, too; the
	// zero value means none.
	Elections doctor.Elections
	// Force removes also what a process may use still.
	Force bool
}

// Object is an object to remove, as it was seen.
type Object struct {
	Kind, Namespace, Name string
	uid                   types.UID
	version               string
}

func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + doctor.Plain(o.Name)
	}
	return o.Kind + " " + o.Namespace + "/" + doctor.Plain(o.Name)
}

// The kinds of objects.
const (
	kindNode    = "Node"
	kindLease   = "Lease"
	kindRequest = "CertificateSigningRequest"
)

// Plan is what was found.
type Plan struct {
	// Objects are removed, in this order.
	Objects []Object
	// Dangers are why that might cost somebody something. Without Config.Force nothing is
	// removed if there is one.
	Dangers []string
	// Notes are about what is not removed.
	Notes []string
}

// callTimeout bounds each call of the API server.
const callTimeout = 30 * time.Second

// ErrRefused is what Remove returns if there are dangers, and Config.Force is not set.
var ErrRefused = errors.New("nothing was removed")

// Remove removes what a plan has, and calls removed for each object that is gone. Where it
// fails the rest stays, and can be found again.
func (p *Plan) Remove(ctx context.Context, cfg Config, removed func(Object)) error {
	if len(p.Dangers) > 0 && !cfg.Force {
		return ErrRefused
	}
	for _, o := range p.Objects {
		gone, err := cfg.remove(ctx, o)
		if err != nil {
			return fmt.Errorf("cannot remove %v: %w", o, err)
		}
		if gone {
			removed(o)
		}
	}
	return nil
}

// maxAttempts is how often a Node is deleted that the control plane writes meanwhile: it
// does so when the lease has gone.
const maxAttempts = 5

// remove deletes an object as it was seen, and reports whether it was there.
func (cfg Config) remove(ctx context.Context, o Object) (gone bool, err error) {
	for range maxAttempts {
		err = cfg.delete(ctx, o)
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case apierrors.IsConflict(err) && o.Kind == kindNode:
			if o, err = cfg.again(ctx, o); err != nil {
				return false, err
			}
			continue
		case apierrors.IsConflict(err):
			return false, fmt.Errorf("somebody has written it just now, so that a process may act for the node (--force removes it anyway): %w", err)
		}
		return err == nil, err
	}
	return false, err
}

// again looks at a Node that was written since it was seen.
func (cfg Config) again(ctx context.Context, o Object) (Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found := &search{Config: cfg, plan: &Plan{}}
	object, err := found.object(ctx, doctor.Node{Name: o.Name})
	if err != nil || object == nil {
		return o, err // without a Node the next attempt ends well
	}
	lease, err := found.lease(ctx, o.Name)
	if err != nil {
		return o, err
	}
	if err := found.pods(ctx, o.Name); err != nil {
		return o, err
	}
	switch {
	case object.UID != o.uid:
		return o, errors.New("another Node has its name since then: run this again")
	case lease != nil && !cfg.Force:
		return o, errors.New("its lease was made again, so that a process acts for it: stop that, and run this again")
	case len(found.plan.Dangers) > 0 && !cfg.Force:
		return o, errors.New(found.plan.Dangers[0])
	}
	o.version = object.ResourceVersion
	return o, nil
}

func (cfg Config) delete(ctx context.Context, o Object) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asSeen := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.uid}}
	if !cfg.Force {
		asSeen.Preconditions.ResourceVersion = &o.version
	}
	switch o.Kind {
	case kindNode:
		return cfg.Client.CoreV1().Nodes().Delete(ctx, o.Name, asSeen)
	case kindLease:
		return cfg.Client.CoordinationV1().Leases(o.Namespace).Delete(ctx, o.Name, asSeen)
	default:
		return cfg.Client.CertificatesV1().CertificateSigningRequests().Delete(ctx, o.Name, asSeen)
	}
}
