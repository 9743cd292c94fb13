package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// registersAfter has the Node registered when the channel is closed.
func registersAfter(begun <-chan struct{}) NodeControllerOpt {
	return WithNodeRegistrationAfter(func() <-chan struct{} { return begun })
}

// beginAfter is begin for a process whose Node is registered once begun is closed.
func (p *process) beginAfter(begun <-chan struct{}) {
	p.t.Helper()
	p.launch(WithNodeMetrics(p.metrics), WithNodeClaim(p.claim), WithNodeEnableLeaseV1(p.claim.cfg.Leases, 40), registersAfter(begun))
}

// A process that takes long until it registers its Node, since its provider lists its
// pods slowly, say, renews the lease meanwhile: no other process takes the node.
func TestLeaseIsKeptBeforeTheRegistration(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases, begun := &versionedLeases{}, make(chan struct{})
		first := newProcess(t, r, leases, identified("first"))
		first.beginAfter(begun)
		second := newProcess(t, r, leases, identified("second"))
		second.begin()
		pass(5 * time.Minute)
		want(t, "the second acts", second.acts(), false)
		want(t, "holder", leases.now().Annotations[annotationHolder], "first")
		want(t, "the Node is there", r.api.Node("vk") != nil, false)
		close(begun)
		pass(15 * time.Second)
		want(t, "the first acts", first.acts(), true)
		want(t, "owner", leases.now().OwnerReferences[0].UID, r.api.Node("vk").UID)
		first.end()
		want(t, "holder after the end", leases.now().Annotations[annotationHolder], "")
		pass(5 * time.Second)
		want(t, "the second acts", second.acts(), true)
	})
}

// A process that loses the node before it has registered it ends.
func TestNodeIsLostBeforeTheRegistration(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, identified("first"))
		first.beginAfter(make(chan struct{}))
		pass(15 * time.Second)
		leases.setAway("first", true)
		second := newProcess(t, r, leases, identified("second"))
		second.begin()
		pass(time.Minute)
		want(t, "the second acts", second.acts(), true)
		leases.setAway("first", false)
		pass(15 * time.Second)
		err := first.stop()
		first.stop = nil
		if !errors.Is(err, ErrNodeTaken) {
			t.Errorf("the first ended with %v, want %v", err, ErrNodeTaken)
		}
		pass(time.Minute)
		want(t, "holder", leases.now().Annotations[annotationHolder], "second")
	})
}

// A lease that somebody deletes, or that goes with its Node, stays with the process
// that had it, however often that happens.
func TestDeletedLeaseIsNotTakenByOthers(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, identified("first"))
		first.begin()
		second := newProcess(t, r, leases, identified("second"))
		second.begin()
		for range 20 {
			pass(17 * time.Second)
			leases.remove()
		}
		pass(time.Minute)
		want(t, "the first acts", first.acts(), true)
		want(t, "the second acts", second.acts(), false)
		first.die(leases)
		leases.remove()
		pass(45 * time.Second)
		want(t, "the second acts after the first has died", second.acts(), true)
	})
}

// Nor does a process take it that starts while the lease is missing.
func TestDeletedLeaseIsNotTakenByAProcessThatStarts(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, identified("first"))
		first.begin()
		for i := range 10 {
			pass(17 * time.Second)
			leases.remove()
			other := newProcess(t, r, leases, identified(fmt.Sprint("process-", i)))
			other.begin()
			pass(15 * time.Second)
			want(t, "another acts", other.acts(), false)
			want(t, "the first acts", first.acts(), true)
			want(t, "holder", leases.now().Annotations[annotationHolder], "first")
			_ = other.stop()
			other.stop = nil
		}
		first.die(leases)
		leases.remove()
		last := newProcess(t, r, leases, identified("last"))
		last.begin()
		pass(39 * time.Second)
		want(t, "the last acts before the lease would have run out", last.acts(), false)
		if waiting := last.claim.Waiting(); waiting == nil || !strings.Contains(waiting.Error(), "no lease") {
			t.Errorf("the last waits for %v, want that the lease is missing", waiting)
		}
		pass(2*claimPoll + time.Second)
		want(t, "the last acts after the first has died", last.acts(), true)
		want(t, "rivals of the last", last.rivals(), 0.)
	})
}

// Nobody is waited for where the Node says that there is no other process.
func TestMissingLeaseOfANodeThatNobodyKeeps(t *testing.T) {
	for name, ready := range map[string]corev1.NodeCondition{
		"that was prepared": {},
		"that has stopped":  {Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: nodeStoppedReason},
		"that was given up": {Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				r.add()
				r.api.ChangeNode("vk", func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{ready} })
				p := newProcess(t, r, &versionedLeases{}, identified("first"))
				p.begin()
				synctest.Wait()
				want(t, "acts", p.acts(), true)
			})
		})
	}
}

// A claim that was acquired and then not renewed for a while is acquired again before
// anything is done by it.
func TestClaimThatWasNotRenewed(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, identified("first"))
		if err := first.claim.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := newProcess(t, r, leases, identified("second"))
		second.begin()
		pass(time.Minute) // in which the first makes its provider
		want(t, "the second acts", second.acts(), true)
		acquired := make(chan error, 1)
		go func() { acquired <- first.claim.Acquire(t.Context()) }()
		pass(5 * time.Minute)
		select {
		case err := <-acquired:
			t.Errorf("the first acquired its claim, with %v, while the second acts", err)
		default:
		}
		second.end()
		pass(5 * time.Second)
		if err := <-acquired; err != nil {
			t.Error(err)
		}
	})
}

// An API server that is away keeps nothing from going on, however short the lease is: its
// renewal is tried again before it would have run out.
func TestWhatAClaimWithAShortLeaseAllows(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		p := newProcess(t, r, leases, identified("first"))
		p.launch(WithNodeClaim(p.claim), WithNodeEnableLeaseV1(p.claim.cfg.Leases, 4))
		pass(time.Minute)
		leases.setAway("first", true)
		pass(5 * time.Second)
		want(t, "may begin", p.claim.MayBegin(), false)
		for range 300 {
			pass(time.Second)
			if !p.claim.MayGoOn() {
				t.Fatal("what was begun may not go on")
			}
		}
		leases.setAway("first", false)
		pass(5 * time.Second)
		want(t, "may begin", p.claim.MayBegin(), true)
	})
}

// hangingLeases can be without an answer.
type hangingLeases struct {
	coordinationv1client.LeaseInterface
	hang atomic.Bool
}

func (l *hangingLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	if l.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return l.LeaseInterface.Get(ctx, name, options)
}

func (l *hangingLeases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if l.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return l.LeaseInterface.Update(ctx, lease, options)
}

// Nor does one that does not answer, however long the interval of the renewals is: an attempt ends before the
// lease would have run out.
func TestWhatAClaimWithALongIntervalAllows(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 39 * time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				p := newProcess(t, r, &versionedLeases{}, identified("first"))
				leases := &hangingLeases{LeaseInterface: p.claim.cfg.Leases}
				p.launch(WithNodeClaim(p.claim), WithNodeEnableLeaseV1WithRenewInterval(leases, 40, interval))
				for range 300 {
					pass(time.Second)
					want(t, "may begin", p.claim.MayBegin(), true)
				}
				leases.hang.Store(true)
				for range 300 {
					pass(time.Second)
					if !p.claim.MayGoOn() {
						t.Fatal("what was begun may not go on")
					}
				}
				leases.hang.Store(false)
				pass(2*interval + 5*time.Second) // the attempt in hand ends, and the next one comes
				want(t, "may begin", p.claim.MayBegin(), true)
			})
		})
	}
}

// errAway is that of a renewal which the API server does not answer.
var errAway = apierrors.NewServiceUnavailable("away")

// What a claim allows while its lease is not renewed: nothing is begun once another
// process may have taken the node; what was begun goes on, but not in a process that stood
// still, before it has looked at the lease, or lost it.
func TestWhatAClaimAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim, err := NewClaim(ClaimConfig{Node: "vk", Nodes: fakeapi.New(t).CoreV1().Nodes(), Leases: (&versionedLeases{}).of("a"), Identity: Identity{ID: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		allows := func(what string, begin, goOn bool) {
			t.Helper()
			want(t, what, [2]bool{claim.MayBegin(), claim.MayGoOn()}, [2]bool{begin, goOn})
		}
		claim.renewals.keep(40 * time.Second)
		claim.renewals.renewed(time.Now())
		pass(39 * time.Second)
		allows("renewed a while ago", true, true)
		claim.renewals.tried(errAway) // the API server does not answer
		pass(2 * time.Second)
		allows("not renewed for its duration", false, true)
		claim.renewals.renewed(time.Now())
		claim.renewals.tried(nil)
		allows("renewed", true, true)
		pass(41 * time.Second)
		allows("stood still", false, false)
		claim.renewals.tried(errAway)
		allows("stood still, and has not reached the API server since", false, false)
		claim.renewals.tried(ErrNodeTaken)
		allows("lost", false, false)
	})
}

// What a claim allows once the machine was suspended, in which time only the wall clock went
// on, or once that was set.
func TestWhatAClaimAllowsByTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim := &Claim{}
		r := &claim.renewals
		renew := func() { r.renewed(time.Now()); r.tried(nil) }
		turn := func(by time.Duration) { // the wall clock
			r.last.wall, r.done.wall = r.last.wall.Add(-by), r.done.wall.Add(-by)
		}
		allows := func(what string, fresh, begin, goOn bool) {
			t.Helper()
			want(t, what, [3]bool{r.within(claimFresh), claim.MayBegin(), claim.MayGoOn()}, [3]bool{fresh, begin, goOn})
		}
		r.keep(40 * time.Second)
		want(t, "fresh before the first renewal", r.within(claimFresh), false)
		renew()
		turn(20 * time.Second)
		allows("suspended for a while", false, true, true)
		turn(20 * time.Second)
		allows("suspended for longer than the lease lasts, or set forward", false, false, false)
		r.tried(errAway)
		allows("not renewed since", false, false, false)
		renew()
		allows("renewed", true, true, true)
		turn(-time.Hour)
		allows("set back", true, true, true)
		pass(41 * time.Second)
		allows("set back, and stood still", false, false, false)
		renew()
		allows("renewed again", true, true, true)
		began := time.Now()
		turn(20 * time.Second)
		r.tried(errAway)
		turn(20 * time.Second)
		allows("the API server is away", false, false, true)
		renew()
		pass(41 * time.Second) // within a renewal
		r.renewed(began)
		r.tried(nil)
		allows("renewed before it stood still", false, false, false)
	})
}
