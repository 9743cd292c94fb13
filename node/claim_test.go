package node

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// versionedLeases is one lease as an API server has it: a write needs the version
// that was read.
type versionedLeases struct {
	coordinationv1client.LeaseInterface
	mu      sync.Mutex
	version int
	lease   *coordinationv1.Lease
	away    map[string]bool // processes that cannot reach it
}

// of is the lease as one process sees it.
func (v *versionedLeases) of(process string) coordinationv1client.LeaseInterface {
	return &leasesOf{versionedLeases: v, process: process}
}

type leasesOf struct {
	*versionedLeases
	process string
}

func (l *leasesOf) reach() error {
	if l.away[l.process] {
		return errors.New("connection refused")
	}
	return nil
}

func (l *leasesOf) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.reach(); err != nil {
		return nil, err
	}
	if l.lease == nil {
		return nil, apierrors.NewNotFound(fakeapi.Leases.GroupResource(), name)
	}
	return l.lease.DeepCopy(), nil
}

func (l *leasesOf) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.reach(); err != nil {
		return nil, err
	}
	if l.lease != nil {
		return nil, apierrors.NewAlreadyExists(fakeapi.Leases.GroupResource(), lease.Name)
	}
	return l.store(lease), nil
}

func (l *leasesOf) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.reach(); err != nil {
		return nil, err
	}
	if l.lease == nil || l.lease.ResourceVersion != lease.ResourceVersion {
		return nil, apierrors.NewConflict(fakeapi.Leases.GroupResource(), lease.Name, errors.New("it has been changed"))
	}
	return l.store(lease), nil
}

// store keeps a lease. The lock is held.
func (v *versionedLeases) store(lease *coordinationv1.Lease) *coordinationv1.Lease {
	v.version++
	v.lease = lease.DeepCopy()
	v.lease.ResourceVersion = strconv.Itoa(v.version)
	return v.lease.DeepCopy()
}

// remove deletes the lease as somebody does who is no process.
func (v *versionedLeases) remove() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lease = nil
}

func (v *versionedLeases) setAway(process string, away bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.away == nil {
		v.away = map[string]bool{}
	}
	v.away[process] = away
}

func (v *versionedLeases) now() coordinationv1.Lease {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lease == nil {
		return coordinationv1.Lease{}
	}
	return *v.lease.DeepCopy()
}

// process is a process that acts for the node.
type process struct {
	*nodeRig
	claim   *Claim
	metrics *Metrics
}

// newProcess makes a process with an identity, which shares the API with others.
func newProcess(t *testing.T, r *nodeRig, leases *versionedLeases, config ClaimConfig) *process {
	t.Helper()
	p := &process{nodeRig: &nodeRig{t: t, api: r.api, node: r.node.DeepCopy()}, metrics: NewMetrics()}
	config.Node, config.Nodes = "vk", r.api.CoreV1().Nodes()
	config.Leases = leases.of(config.Identity.ID)
	var err error
	if p.claim, err = NewClaim(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.stop != nil {
			_ = p.stop()
		}
	})
	return p
}

func (p *process) begin() {
	p.t.Helper()
	p.launch(WithNodeMetrics(p.metrics), WithNodeClaim(p.claim), WithNodeEnableLeaseV1(p.claim.cfg.Leases, 40))
}

// acts reports whether the process acts for the node.
func (p *process) acts() bool {
	select {
	case <-p.nc.Ready():
	default:
		return false
	}
	select {
	case <-p.nc.Done():
		return false
	default:
		return true
	}
}

// die ends the process as a kill does: it writes nothing more.
func (p *process) die(leases *versionedLeases) {
	leases.setAway(p.claim.cfg.Identity.ID, true)
	_ = p.stop()
	p.stop = nil
}

func (p *process) rivals() float64 {
	p.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.metrics)
	families, err := registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "vk_node_rivals_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	p.t.Error("there is no metric of rivals")
	return 0
}

func identified(id string) ClaimConfig { return ClaimConfig{Identity: Identity{ID: id}} }

// A second process with the node's name does nothing while the first one lives,
// and its end changes nothing.
func TestSecondProcessDoesNotAct(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, identified("first"))
		first.begin()
		pass(15 * time.Second)
		want(t, "the first acts", first.acts(), true)
		want(t, "HolderIdentity", ptr.Deref(leases.now().Spec.HolderIdentity, ""), "vk")

		second := newProcess(t, r, leases, identified("second"))
		second.node.Labels = map[string]string{"by": "second"}
		second.begin()
		pass(10 * time.Minute)
		want(t, "the second acts", second.acts(), false)
		want(t, "the first acts", first.acts(), true)
		want(t, "the label of the second", r.api.Node("vk").Labels["by"], "")
		if waiting := second.claim.Waiting(); waiting == nil || !strings.Contains(waiting.Error(), "first") {
			t.Errorf("the second waits for %v, want the first", waiting)
		}
		if err := second.stop(); err == nil {
			t.Error("the second returned nil, want why it did not get the node")
		}
		second.stop = nil
		pass(time.Second)
		first.wantReady("True")
		want(t, "writes of the second", second.nodeWrites.Load(), 0)
		want(t, "holder", leases.now().Annotations[annotationHolder], "first")
	})
}

// What a second process saw counts once it has metrics.
func TestSecondProcessIsCounted(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, identified("first"))
		first.begin()
		second := newProcess(t, r, leases, identified("second"))
		second.begin()
		pass(5 * time.Minute)
		want(t, "rivals of the first", first.rivals(), 0.)
		want(t, "rivals of the second", second.rivals(), 1.)
	})
}

// However the first process has ended, the second acts in the end: at once where the
// first gave the node back, or is known to have ended, or agrees with it by other
// means; else when the lease was not renewed for its duration.
func TestTakingTheNodeOfAnEarlierProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second Identity
		orderly       bool
		after         time.Duration
	}{
		"that ended":                   {Identity{ID: "a"}, Identity{ID: "b"}, true, 0},
		"that was killed":              {Identity{ID: "a"}, Identity{ID: "b"}, false, 40 * time.Second},
		"that is known to have ended":  {Identity{ID: "a"}, Identity{ID: "b", Ended: func(id string) bool { return id == "a" }}, false, 0},
		"of the same group":            {Identity{ID: "a", Group: "g"}, Identity{ID: "b", Group: "g"}, false, 0},
		"of another group":             {Identity{ID: "a", Group: "g"}, Identity{ID: "b", Group: "h"}, false, 40 * time.Second},
		"of no group":                  {Identity{ID: "a"}, Identity{ID: "b", Group: "h"}, false, 40 * time.Second},
		"which cannot know of its end": {Identity{ID: "a"}, Identity{ID: "b", Ended: func(string) bool { return false }}, false, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				leases := &versionedLeases{}
				first := newProcess(t, r, leases, ClaimConfig{Identity: tc.first})
				first.begin()
				pass(time.Minute)
				if tc.orderly {
					first.end()
				} else {
					first.die(leases)
				}
				second := newProcess(t, r, leases, ClaimConfig{Identity: tc.second})
				second.begin()
				if tc.after > 0 {
					pass(tc.after - time.Second)
					want(t, "acts before the lease has run out", second.acts(), false)
					pass(2*claimPoll + time.Second)
				}
				want(t, "acts", second.acts(), true)
				pass(time.Minute)
				want(t, "holder", leases.now().Annotations[annotationHolder], "b")
				want(t, "group", leases.now().Annotations[annotationHolderGroup], tc.second.Group)
				want(t, "owner", leases.now().OwnerReferences[0].UID, r.api.Node("vk").UID)
			})
		})
	}
}

// The clock of the first process may be wrong by hours: what counts is whether it
// still renews the lease.
func TestClocksNeedNotAgree(t *testing.T) {
	for _, skew := range []time.Duration{-5 * time.Hour, 5 * time.Hour} {
		nodeBubble(t, func(t *testing.T, r *nodeRig) {
			leases := &versionedLeases{}
			renew := func() {
				lease := newLease("vk", "")
				lease.Annotations = map[string]string{annotationHolder: "first"}
				lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(skew)}
				leases.mu.Lock()
				defer leases.mu.Unlock()
				leases.store(lease)
			}
			renew()
			second := newProcess(t, r, leases, identified("second"))
			second.begin()
			for range 30 {
				pass(10 * time.Second)
				renew()
			}
			want(t, "acts while the first renews", second.acts(), false)
			pass(43 * time.Second)
			want(t, "acts", second.acts(), true)
		})
	}
}

// A process that could not reach the API server for so long that another one took
// the node ends when it learns of that, and does not take the node back.
func TestProcessThatLostTheNodeEnds(t *testing.T) {
	for _, group := range []string{"", "g"} {
		nodeBubble(t, func(t *testing.T, r *nodeRig) {
			leases := &versionedLeases{}
			first := newProcess(t, r, leases, ClaimConfig{Identity: Identity{ID: "first", Group: group}})
			first.begin()
			pass(time.Minute)
			leases.setAway("first", true)
			second := newProcess(t, r, leases, ClaimConfig{Identity: Identity{ID: "second", Group: group}})
			second.begin()
			pass(time.Minute)
			want(t, "the second acts", second.acts(), true)
			written := first.nodeWrites.Load()
			leases.setAway("first", false)
			pass(20 * time.Second)
			select {
			case <-first.nc.Done():
			default:
				t.Fatal("the first acts, too")
			}
			if err := first.nc.Err(); !errors.Is(err, ErrNodeTaken) {
				t.Errorf("the first ended with %v, want %v", err, ErrNodeTaken)
			}
			want(t, "rivals of the first", first.rivals(), 1.)
			_ = first.stop()
			first.stop = nil
			second.wantReady("True")
			want(t, "writes of the first", first.nodeWrites.Load(), written)
			pass(time.Minute)
			want(t, "holder", leases.now().Annotations[annotationHolder], "second")
		})
	}
}

// A process without an identity, such as one of an earlier version, is seen by its
// renewals: it is counted once, and nobody ends.
func TestProcessWithoutIdentityIsSeen(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, identified("first"))
		first.begin()
		pass(time.Minute)
		other := &nodeRig{t: t, api: r.api, node: r.node.DeepCopy()}
		otherMetrics := &process{nodeRig: other, metrics: NewMetrics()}
		other.start(WithNodeEnableLeaseV1(leases.of("other"), 40), WithNodeMetrics(otherMetrics.metrics))
		pass(5 * time.Minute)
		want(t, "the first acts", first.acts(), true)
		want(t, "rivals of the first", first.rivals(), 1.)
		want(t, "rivals of the other", otherMetrics.rivals(), 1.)
		want(t, "holder", leases.now().Annotations[annotationHolder], "first")
		other.end()
	})
}

// Renewals whose answers got lost are not taken for those of another process.
func TestLostAnswersAreNoRival(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		p := newProcess(t, r, leases, identified("first"))
		deaf := &deafLeases{LeaseInterface: p.claim.cfg.Leases}
		p.launch(WithNodeMetrics(p.metrics), WithNodeClaim(p.claim), WithNodeEnableLeaseV1(deaf, 40))
		pass(time.Hour)
		want(t, "acts", p.acts(), true)
		want(t, "rivals", p.rivals(), 0.)
	})
}

// deafLeases loses the answer to every other update.
type deafLeases struct {
	coordinationv1client.LeaseInterface
	updates int
}

func (d *deafLeases) Update(ctx context.Context, l *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l, err := d.LeaseInterface.Update(ctx, l, opts)
	if d.updates++; d.updates%2 == 0 && err == nil {
		return nil, errors.New("connection reset by peer")
	}
	return l, err
}

// A node that is not there yet, or whose lease somebody deletes, is claimed, too.
func TestClaimOfALeaseThatGoes(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		p := newProcess(t, r, leases, identified("first"))
		p.begin()
		pass(20 * time.Second)
		want(t, "owner", leases.now().OwnerReferences[0].UID, r.api.Node("vk").UID)
		leases.remove()
		pass(20 * time.Second)
		want(t, "acts", p.acts(), true)
		want(t, "holder", leases.now().Annotations[annotationHolder], "first")
		p.end()
		want(t, "holder after the end", leases.now().Annotations[annotationHolder], "")
	})
}

// The lease is there before the Node, and without an owner it would stay when the Node
// goes: it gets its owner with the registration, and another one with the next.
func TestLeaseBelongsToItsNodeAtOnce(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		p := newProcess(t, r, leases, identified("first"))
		p.begin()
		synctest.Wait()
		first := r.api.Node("vk").UID
		want(t, "owner", leases.now().OwnerReferences, ownedByNode("vk", first))
		pass(time.Minute)
		if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
			t.Fatal(err)
		}
		pass(repairDelay + time.Millisecond)
		second := r.api.Node("vk").UID
		if second == first {
			t.Fatal("the node was not registered again")
		}
		want(t, "owner after the second registration", leases.now().OwnerReferences, ownedByNode("vk", second))
	})
}

// A process that hands the node over leaves the lease to the next, with its own
// identity: they agree by other means.
func TestHandOverTakesNoTime(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, ClaimConfig{Identity: Identity{ID: "first", Group: "g"}})
		ctx, handOver := context.WithCancelCause(t.Context())
		if err := first.claim.Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		handOver(ErrHandedOver)
		first.claim.Release(ctx)
		want(t, "holder", leases.now().Annotations[annotationHolder], "first")
		second := newProcess(t, r, leases, ClaimConfig{Identity: Identity{ID: "second", Group: "g"}})
		begin := time.Now()
		second.begin()
		synctest.Wait()
		want(t, "acts", second.acts(), true)
		want(t, "takes", time.Since(begin), 0)
	})
}

func TestClaimConfigIsChecked(t *testing.T) {
	nodes := fakeapi.New(t).CoreV1().Nodes()
	for name, config := range map[string]ClaimConfig{
		"no name":     {Nodes: nodes},
		"no client":   {Node: "vk"},
		"no identity": {Node: "vk", Nodes: nodes, Leases: (&versionedLeases{}).of("a")},
		"no pods":     {Node: "vk", Nodes: nodes, Adopt: true},
	} {
		if _, err := NewClaim(config); !errdefs.IsInvalidInput(err) {
			t.Errorf("%s: got %v, want an error of class InvalidInput", name, err)
		}
	}
	claim, err := NewClaim(ClaimConfig{Node: "other", Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewNodeController(nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}}, nodes, WithNodeClaim(claim)); !errdefs.IsInvalidInput(err) {
		t.Errorf("the claim to another node: got %v, want an error of class InvalidInput", err)
	}
}
