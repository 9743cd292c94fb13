// Package leader runs a function in one of several processes, while the others stand by.
// It uses a Lease of the API server and client-go's leaderelection. In addition, a
// leader stops as soon as it may have lost the lease, and releases it when the function
// has returned.
package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// Election is one process's part in the election. All fields are required.
type Election struct {
	// Client needs the rights to create, get and update the lease.
	Client coordinationv1client.LeasesGetter
	// Namespace and Name are those of the lease.
	Namespace, Name string
	// Identity distinguishes this process from all others, also from itself before a
	// restart.
	Identity string
	// LeaseDuration is the time after which another process takes over from one that
	// does not renew the lease: whole seconds, at least 3. A leader that could not
	// renew it for two thirds of that time stops.
	LeaseDuration time.Duration
}

// ErrLost is what Run returns if the lease was lost.
var ErrLost = errors.New("the leader's lease was lost")

// Run waits until this process leads, calls lead, and returns what that returned,
// joined with ErrLost if the lease was lost meanwhile. If ctx ends first it
// returns nil. It can be called once.
//
// The ctx of lead ends when ctx ends or the lease is lost, with the cause
// node.ErrHandedOver in both cases: a node that lead runs is then not marked not ready,
// since another process goes on with it.
func (e Election) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	lock := newGuardedLock(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		Client:     e.Client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
	}, e.LeaseDuration*2/3)
	elected := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          e.Name,
		Lock:          lock,
		LeaseDuration: e.LeaseDuration,
		RenewDeadline: e.LeaseDuration * 2 / 3,
		RetryPeriod:   e.LeaseDuration * 2 / 15,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: lock.lose,
			OnNewLeader: func(identity string) {
				if identity != "" { // otherwise it was released
					log.G(ctx).WithField("leader", identity).Info("There is a leader")
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("cannot take part in the election of a leader: %w", err)
	}
	// The election goes on until what is led has ended.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() { // waited for below
		defer close(over)
		elector.Run(electing)
	}()
	lost := false
	select {
	case <-elected:
		err = e.lead(ctx, lock.lost, lead)
		lost = ctx.Err() == nil && lock.lost.Err() != nil
	case <-ctx.Done():
	}
	stop()
	<-over
	lock.release(ctx)
	if lost {
		return errors.Join(ErrLost, err)
	}
	return err
}

// lead calls lead with a context that ends with either of the two.
func (e Election) lead(asked, lost context.Context, lead func(ctx context.Context) error) error {
	log.G(asked).WithField("identity", e.Identity).Info("This process leads")
	ctx, end := context.WithCancelCause(context.WithoutCancel(asked))
	defer end(nil)
	handOver := func() { end(node.ErrHandedOver) }
	defer context.AfterFunc(asked, handOver)()
	defer context.AfterFunc(lost, handOver)()
	return lead(ctx)
}
