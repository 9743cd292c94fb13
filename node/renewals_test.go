package node

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
		want(t, "the Node is there", r.api.node("vk") != nil, false)
		close(begun)
		pass(15 * time.Second)
		want(t, "the first acts", first.acts(), true)
		want(t, "owner", leases.now().OwnerReferences[0].UID, r.api.node("vk").UID)
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
			leases.mu.Lock()
			leases.lease = nil
			leases.mu.Unlock()
		}
		pass(time.Minute)
		want(t, "the first acts", first.acts(), true)
		want(t, "the second acts", second.acts(), false)
		first.die(leases)
		leases.mu.Lock()
		leases.lease = nil
		leases.mu.Unlock()
		pass(45 * time.Second)
		want(t, "the second acts after the first has died", second.acts(), true)
	})
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

// heldClaim is a claim that a NodeController has kept until now.
func heldClaim(t *testing.T, r *rig) *Claim {
	t.Helper()
	claim, err := NewClaim(ClaimConfig{Node: "vk", Nodes: r.api.CoreV1().Nodes(), Leases: (&versionedLeases{}).of("a"), Identity: Identity{ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	claim.renewals.keep(40 * time.Second)
	claim.renewals.renewed(time.Now())
	return claim
}

// While the lease of the node cannot be renewed no pod is created: another process may
// have taken the node. What was begun goes on, and ends.
func TestNothingIsBegunWithoutTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		claim := heldClaim(t, r)
		r.start(func(c *PodControllerConfig) { c.Claim = claim })
		r.api.addPod(aPod("before"))
		pass(39 * time.Second)
		r.provider.took()
		r.events.recorded()
		pass(2 * time.Second)
		pod := r.api.addPod(aPod("web"))
		for range 12 { // the API server does not answer
			pass(5 * time.Second)
			claim.renewals.tried(false)
		}
		wantList(t, "creations", r.provider.took("create"))
		wantList(t, "events", r.events.recorded(), "Warning NodeUnclaimed: "+unclaimedMessage)
		r.api.deletePod("before")
		pass(time.Second)
		wantList(t, "ends", r.provider.took("delete"), "delete before uid-1001 grace 30")
		want(t, "pod that has ended", r.api.pod("before"), nil)
		claim.renewals.renewed(time.Now())
		pass(3 * time.Second)
		wantList(t, "creations", r.provider.took("create"), "create web "+string(pod.UID))
	})
}

// A process that stood still, stopped by a signal or with its machine, does nothing
// before it has looked at the lease: another one may have ended the pod, and made a new
// one of that name.
func TestProcessThatStoodStill(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			claim := heldClaim(t, r)
			r.provider.script(func(s *script) { s.lingers = true })
			r.start(func(c *PodControllerConfig) { c.Claim = claim })
			r.api.addPod(aPod("web"))
			r.api.addPod(aPod("other"))
			pass(time.Second)
			r.api.deletePod("web")
			pass(time.Second)
			wantList(t, "ends", r.provider.took("delete"), "delete web uid-1001 grace 30")
			claim.renewals.mu.Lock() // it stands still, and its timers are due then
			claim.renewals.done = time.Now().Add(-25 * time.Second)
			claim.renewals.mu.Unlock()
			pass(16 * time.Second)
			r.api.deletePod("other")
			pass(15 * time.Second)
			wantList(t, "ends before the lease was looked at", r.provider.took("delete"))
			claim.renewals.tried(lost)
			pass(3 * time.Second)
			synctest.Wait()
			if lost {
				wantList(t, "ends when the node was lost", r.provider.took("delete"))
				return
			}
			calls := r.provider.took("delete")
			want(t, "ends", len(calls), 2)
		})
	}
}
