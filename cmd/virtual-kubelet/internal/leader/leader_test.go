package leader_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/leader"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// candidate is one of the processes that would lead.
type candidate struct {
	leads atomic.Bool
	cause error // with which its leadership has ended
	ended error // what Run has returned
	over  chan struct{}
	stop  context.CancelFunc
	tail  time.Duration // how long what it led takes to end
}

func stand(client *fake.Clientset, identity string) *candidate {
	ctx, stop := context.WithCancel(context.Background())
	c := &candidate{over: make(chan struct{}), stop: stop}
	election := leader.Election{Client: client.CoordinationV1(), Namespace: "kube-system", Name: "vk-leader", Identity: identity, LeaseDuration: 15 * time.Second}
	go func() {
		defer close(c.over)
		c.ended = election.Run(ctx, func(ctx context.Context) error {
			c.leads.Store(true)
			defer c.leads.Store(false)
			<-ctx.Done()
			c.cause = context.Cause(ctx)
			time.Sleep(c.tail)
			return nil
		})
	}()
	return c
}

func TestStandbyTakesOverWhenTheLeaderCannotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		var away atomic.Bool
		fakeapi.React(&client.Fake, "update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			lease := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			if away.Load() && ptr.Deref(lease.Spec.HolderIdentity, "") != "b" {
				return true, nil, errors.New("the API server cannot be reached")
			}
			return false, nil, nil
		})
		a := stand(client, "a")
		pass(10 * time.Second)
		b := stand(client, "b")
		pass(time.Minute)
		if !a.leads.Load() || b.leads.Load() {
			t.Fatalf("leading: a %v, b %v; want a alone", a.leads.Load(), b.leads.Load())
		}
		away.Store(true)
		for range 150 {
			pass(100 * time.Millisecond)
			if a.leads.Load() && b.leads.Load() {
				t.Fatal("both lead")
			}
		}
		pass(10 * time.Second)
		if a.leads.Load() || !b.leads.Load() {
			t.Errorf("after 25 s leading: a %v, b %v; want b alone", a.leads.Load(), b.leads.Load())
		}
		<-a.over
		if !errors.Is(a.ended, leader.ErrLost) || !errors.Is(a.cause, node.ErrHandedOver) {
			t.Errorf("the one that lost the lease ended with %v, because of %v", a.ended, a.cause)
		}
		b.stop()
		<-b.over
	})
}

// A process that stood still does not go on when it sees another leader.
func TestLeaderThatSeesAnotherOneStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		var taken atomic.Bool
		fakeapi.React(&client.Fake, "update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if taken.Load() {
				return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "vk-leader", errors.New("written meanwhile"))
			}
			return false, nil, nil
		})
		fakeapi.React(&client.Fake, "get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !taken.Load() {
				return false, nil, nil
			}
			return true, &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("b")}}, nil
		})
		a := stand(client, "a")
		pass(10 * time.Second)
		taken.Store(true)
		pass(3 * time.Second) // until its next renewal
		if a.leads.Load() {
			t.Error("it still leads")
		}
		<-a.over
		if !errors.Is(a.ended, leader.ErrLost) {
			t.Errorf("it ended with %v", a.ended)
		}
	})
}

// The lease is given back when what was led has ended, and not before.
func TestLeaderThatEndsHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		a := stand(client, "a")
		a.tail = 20 * time.Second // longer than the lease
		pass(10 * time.Second)
		b := stand(client, "b")
		pass(10 * time.Second)
		a.stop()
		pass(19 * time.Second)
		if !a.leads.Load() || b.leads.Load() {
			t.Errorf("while the leader ends, leading: a %v, b %v; want a alone", a.leads.Load(), b.leads.Load())
		}
		pass(10 * time.Second)
		if !b.leads.Load() {
			t.Error("the standby does not lead, although the leader has ended")
		}
		if a.ended != nil || !errors.Is(a.cause, node.ErrHandedOver) {
			t.Errorf("the leader ended with %v, because of %v", a.ended, a.cause)
		}
		b.stop()
		<-b.over
	})
}

func TestStandbyThatIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		a := stand(client, "a")
		pass(10 * time.Second)
		b := stand(client, "b")
		pass(10 * time.Second)
		b.stop()
		<-b.over
		if b.ended != nil || !a.leads.Load() {
			t.Errorf("the standby ended with %v; the leader leads: %v", b.ended, a.leads.Load())
		}
		a.stop()
		<-a.over
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
