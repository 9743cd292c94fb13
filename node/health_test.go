package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// The heartbeat is the lease, renewed every ten seconds for forty; the status is
// written every five minutes.
func TestHeartbeatByLease(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		lease := r.lease()
		want(t, "duration", *lease.Spec.LeaseDurationSeconds, 40)
		want(t, "holder", *lease.Spec.HolderIdentity, "vk")
		want(t, "owner", lease.OwnerReferences[0].UID, r.api.Node("vk").UID)
		pass(10 * time.Second) // in which it is renewed once more, at random
		last := r.lease().Spec.RenewTime.Time
		for range 20 {
			pass(11 * time.Second)
			renewed := r.lease().Spec.RenewTime.Time
			if gap := renewed.Sub(last); gap < 9*time.Second || gap > 22*time.Second {
				t.Errorf("renewed after %v, want every 10 s", gap)
			}
			last = renewed
		}
		r.api.Written()
		pass(time.Hour)
		statuses, leases := 0, 0
		for _, w := range r.api.Written() {
			switch w {
			case "patch nodes/status vk":
				statuses++
			case "update leases":
				leases++
			default:
				t.Errorf("write: %s", w)
			}
		}
		if statuses < 11 || statuses > 13 {
			t.Errorf("status written %d times in an hour, want every five minutes", statuses)
		}
		if leases < 340 || leases > 365 {
			t.Errorf("lease renewed %d times in an hour, want every ten seconds", leases)
		}
	})
}

// What the API server drops, as those of before 1.36 do DeclaredFeatures, does not make the status differ for ever. What
// others change is repaired all the same, and what the provider changes is written.
func TestStatusThatTheAPIDoesNotKeep(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.api.NoDeclaredFeatures = true
		r.node.Status.DeclaredFeatures = []string{"a"}
		r.start(r.withLease())
		pass(time.Minute)
		r.api.Written()
		statuses := func() (count int) {
			pass(10 * time.Minute)
			for _, w := range r.api.Written() {
				if w == "patch nodes/status vk" {
					count++
				}
			}
			return count
		}
		want(t, "statuses in ten minutes at rest", statuses(), 2)
		r.api.ChangeNode("vk", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "other" })
		if count := statuses(); count < 2 || count > 4 {
			t.Errorf("%d statuses after another's change, want that and two", count)
		}
		want(t, "version", r.api.Node("vk").Status.NodeInfo.KubeletVersion, "v1.36.3")
		changed := r.node.DeepCopy()
		changed.Status.NodeInfo.KubeletVersion = "v1.37.0"
		r.notify(changed)
		if count := statuses(); count < 2 || count > 4 {
			t.Errorf("%d statuses after the provider's change, want that and two", count)
		}
		want(t, "version", r.api.Node("vk").Status.NodeInfo.KubeletVersion, "v1.37.0")
	})
}

// Without a lease the status is the heartbeat, every ping interval.
func TestHeartbeatByStatus(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(WithNodePingInterval(20*time.Second), WithNodeStatusUpdateInterval(time.Hour))
		r.api.Written()
		beat := func() time.Time { return r.api.Node("vk").Status.Conditions[0].LastHeartbeatTime.Time }
		first := beat()
		pass(10*time.Minute + time.Second)
		want(t, "writes", len(r.api.Written()), 30)
		if !beat().After(first) {
			t.Error("the heartbeat stands still")
		}
		want(t, "transition", r.api.Node("vk").Status.Conditions[0].LastTransitionTime.Time.Equal(first), true)
	})
}

// The node is NotReady, with the reason, while the provider is not well.
func TestPing(t *testing.T) {
	for name, tc := range map[string]struct {
		ping func(context.Context) error
		want string
	}{
		"error": {func(context.Context) error { return errors.New("backend away") }, "False ProviderNotReady backend away"},
		"panic": {func(context.Context) error { panic("boom") }, "False ProviderNotReady the provider panicked in Ping: boom"},
		"slow":  {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "False ProviderNotReady "},
		"hangs": {func(context.Context) error { time.Sleep(5 * time.Minute); return nil }, "False ProviderNotReady the provider did not answer a ping within 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				r.start(r.withLease(), WithNodePingTimeout(3*time.Second))
				r.wantReady("True")
				r.pinged(tc.ping)
				pass(14 * time.Second)
				r.wantReady(tc.want)
				before := r.lease().Spec.RenewTime.Time
				pass(time.Minute)
				if !r.lease().Spec.RenewTime.After(before) {
					t.Error("the lease stands still: it says that the process lives, not that the provider is well")
				}
				r.wantReady(tc.want)
				r.pinged(nil)
				pass(5 * time.Minute)
				r.wantReady("True KubeletReady")
			})
		})
	}
}

// An answer in time is one, though it ends the context of the ping as well.
func TestPingsInTime(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		for range 50000 {
			if _, err := r.nc.ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Pings that hang do not pile up.
func TestHangingPingsDoNotPileUp(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.pinged(func(context.Context) error { time.Sleep(time.Hour); return nil })
		before := r.countPings()
		pass(50 * time.Minute)
		want(t, "pings", r.countPings()-before, 1)
		r.end()
		pass(time.Hour) // until it is answered
	})
}

// A provider that is not well at the start gets a node that is not ready.
func TestUnhealthyAtTheStart(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.pinged(func(context.Context) error { return errors.New("backend away") })
		r.start(r.withLease())
		r.wantReady("False ProviderNotReady backend away")
	})
}

// A change of health that could not be written is written soon.
func TestHealthWhileTheAPIIsAway(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.api.Fail("patch nodes/status", apierrors.NewServiceUnavailable("away"))
		r.pinged(func(context.Context) error { return errors.New("backend away") })
		pass(15 * time.Second)
		r.api.Fail("patch nodes/status", nil)
		pass(10 * time.Second)
		r.wantReady("False ProviderNotReady")
	})
}

// What the control plane made of the node while the API server was away is
// repaired when the lease shows that it is back, though the watch (here: none)
// takes longer.
func TestReturnOfTheAPI(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		forbidden := apierrors.NewForbidden(fakeapi.Nodes.GroupResource(), "", errors.New("no"))
		r.api.Fail("list nodes", forbidden)
		r.api.Fail("watch nodes", forbidden)
		r.start(r.withLease())
		pass(15 * time.Second)
		away := apierrors.NewServiceUnavailable("away")
		r.api.Fail("update leases", away)
		r.api.Fail("get leases", away)
		pass(time.Minute)
		r.api.ChangeNode("vk", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		})
		r.api.Fail("update leases", nil)
		r.api.Fail("get leases", nil)
		pass(20 * time.Second)
		r.wantReady("True")
	})
}

// A shutdown leaves the Node as it is: a restart is not noticed. Where it is asked for,
// or where the node was removed for good, the node says that it is not ready; never
// where another process goes on with it.
func TestShutdownLeavesTheNodeReady(t *testing.T) {
	for name, tc := range map[string]struct {
		cause error
		opts  []NodeControllerOpt
		want  string
	}{
		"a shutdown":                  {nil, nil, "True"},
		"a shutdown that is to say":   {nil, []NodeControllerOpt{WithNodeNotReadyAtShutdown()}, "False KubeletStopped"},
		"a removal":                   {ErrNodeRemoved, nil, "False KubeletStopped"},
		"a hand-over":                 {ErrHandedOver, nil, "True"},
		"a hand-over that is to say":  {ErrHandedOver, []NodeControllerOpt{WithNodeNotReadyAtShutdown()}, "True"},
		"a removal that is to say so": {ErrNodeRemoved, []NodeControllerOpt{WithNodeNotReadyAtShutdown()}, "False KubeletStopped"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				ctx, end := context.WithCancelCause(t.Context())
				nc, err := NewNodeController(r, r.node, r.api.CoreV1().Nodes(), append(tc.opts, r.withLease())...)
				if err != nil {
					t.Fatal(err)
				}
				result := make(chan error, 1)
				go func() { result <- nc.Run(ctx) }()
				pass(time.Minute)
				r.wantReady("True")
				r.api.Written()
				end(tc.cause)
				if err := <-result; err != nil {
					t.Error(err)
				}
				r.wantReady(tc.want)
				if tc.want == "True" {
					wantList(t, "writes at the end", r.api.Written())
				}
			})
		})
	}
}

// What the end writes is the last.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease(), WithNodeNotReadyAtShutdown())
		pass(time.Minute)
		r.end()
		r.wantReady("False KubeletStopped")
		<-r.nc.Done()
		want(t, "Err", r.nc.Err(), nil)
		r.api.Written()
		r.notify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"late": "1"}}})
		pass(time.Hour)
		wantList(t, "writes afterwards", r.api.Written())
		if err := r.nc.Run(t.Context()); err == nil {
			t.Error("it ran twice")
		}
	})
}
