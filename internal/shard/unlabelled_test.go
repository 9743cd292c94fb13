package shard_test

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/shard"
)

// Leases that lose their label get it back from who has them, and nothing moves.
func TestUnlabelledLeasesStayWithTheirHolders(t *testing.T) {
	stayWithTheirHolders(t, 9, (*world).unlabel)
}

// So they do when that takes a while, in many courses of events: a holder that finds the label gone does
// not wait for its next look.
func TestUnlabelledLeasesInManyCourses(t *testing.T) {
	for seed := range uint64(40) {
		stayIn(t, seed, func(w *world) int { return w.unlabel(anyLease) })
	}
}

// Those of a process that was killed are taken once they have expired.
func TestUnlabelledLeasesOfAKilledProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6, 10)
		a, b := w.join("a"), w.join("b")
		pass(time.Minute)
		b.kill()
		w.unlabel(func(lease *coordinationv1.Lease) bool { return *lease.Spec.HolderIdentity == "b" && ofShards(lease) })
		pass(time.Minute)
		w.wantBalance("without the one", a)
		w.wantLabels()
		a.end()
	})
}

// A lease that is there before the first process, without the label, is waited for, and
// taken; that keeps nobody from the other shards.
func TestUnlabelledLeaseOfSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 11)
		w.mu.Lock()
		w.put(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "vk-shard-1"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("else"), LeaseDurationSeconds: ptr.To[int32](60)},
		})
		w.mu.Unlock()
		p := w.join("a")
		pass(50 * time.Second)
		if _, unserved := w.loads(); len(unserved) != 1 || unserved[0] != 1 {
			t.Errorf("nobody serves the shards %v, want only the one whose lease another holds", unserved)
		}
		pass(30 * time.Second)
		w.wantBalance("when it has expired", p)
		w.wantLabels()
		p.end()
	})
}

// wantLabels fails the test unless all leases can be found.
func (w *world) wantLabels() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, lease := range w.leases {
		if !listed(lease) {
			w.t.Errorf("lease %s has no label %s", name, shard.Label)
		}
	}
}
