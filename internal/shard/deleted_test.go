package shard_test

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

func anyLease(*coordinationv1.Lease) bool          { return true }
func ofShards(lease *coordinationv1.Lease) bool    { return isShard(lease.Name) }
func ofProcesses(lease *coordinationv1.Lease) bool { return !isShard(lease.Name) }

func named(name string) func(*coordinationv1.Lease) bool {
	return func(lease *coordinationv1.Lease) bool { return lease.Name == name }
}

// What somebody deletes is made again by who has it, and nothing moves.
func TestDeletedLeasesStayWithTheirHolders(t *testing.T) {
	stayWithTheirHolders(t, 5, (*world).delete)
}

// stayWithTheirHolders checks that nothing moves when something is done to leases, again and again, and
// that all can be found in the end.
func stayWithTheirHolders(t *testing.T, seed uint64, change func(w *world, which func(*coordinationv1.Lease) bool) int) {
	t.Helper()
	for name, which := range map[string]func(*coordinationv1.Lease) bool{
		"all": anyLease, "of shards": ofShards, "of processes": ofProcesses, "one": named("vk-shard-3"),
	} {
		t.Run(name, func(t *testing.T) {
			stayIn(t, seed, func(w *world) int { return change(w, which) })
		})
	}
}

// stayIn is stayWithTheirHolders in one course of events.
func stayIn(t *testing.T, seed uint64, change func(w *world) int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6, seed)
		a, b, c := w.join("a"), w.join("b"), w.join("c")
		pass(time.Minute)
		moves := w.moves
		for range 20 {
			if change(w) == 0 {
				t.Error("there is nothing to change")
			}
			pass(8*time.Second + time.Duration(w.intn(4000))*time.Millisecond)
		}
		w.wantBalance("at the end", a, b, c)
		if w.moves != moves {
			t.Errorf("with seed %d %d shards have moved", seed, w.moves-moves)
		}
		w.wantLabels()
		for _, p := range []*process{a, b, c} {
			p.end()
		}
	})
}

// A holder that cannot know that its leases were deleted has the time that it would
// have had, also from a process that starts later, and then others take the shards.
func TestDeletedLeasesOfAProcessThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6, 6)
		a, b := w.join("a"), w.join("b")
		pass(time.Minute)
		a.setWay(wayRefused)
		w.delete(func(lease *coordinationv1.Lease) bool {
			return *lease.Spec.HolderIdentity == "a" && ofShards(lease)
		})
		c := w.join("c")
		pass(5 * time.Second)
		if loads, _ := w.loads(); loads["a"] != 3 {
			t.Errorf("after 5 s the shards are served by %v, want 3 of them by a", loads)
		}
		pass(30 * time.Second)
		w.wantBalance("without the one", b, c)
		b.end()
		c.end()
		a.end()
	})
}

// A lease that was deleted, made again and deleted again, while this process could
// not look, is not taken for one that has been missing all the time.
func TestDeletedLeaseThatWasMadeAgainMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 7)
		holder := w.join("b")
		pass(10 * time.Second)
		other := w.join("a") // whose turn it is if the shard is free
		pass(time.Minute)
		for other.misses() == 0 { // it looks at some moment before the lease is made again
			w.delete(ofShards)
			pass(50 * time.Millisecond)
		}
		pass(time.Second) // it has the answer
		other.setWay(wayRefused)
		pass(20 * time.Second)
		if w.delete(ofShards) != 1 {
			t.Error("the lease was not made again")
		}
		holder.setWay(wayRefused)
		other.setWay(wayOpen)
		pass(5 * time.Second)
		if loads, _ := w.loads(); loads["b"] != 1 {
			t.Errorf("the shard is served by %v, want b", loads)
		}
		pass(30 * time.Second)
		w.wantBalance("at the end", other)
		holder.end()
		other.end()
	})
}

// That there are processes with another number of shards is not forgotten either.
func TestDeletedLeasesOfProcessesWithAnotherNumberOfShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, 8)
		old := w.join("old")
		pass(time.Minute)
		w.mu.Lock()
		w.count = 6
		w.mu.Unlock()
		next := w.join("next")
		pass(time.Minute)
		for range 10 {
			w.delete(anyLease)
			pass(10 * time.Second)
			if loads, _ := w.loads(); loads["old"] != 4 || loads["next"] != 0 {
				t.Errorf("the shards are served by %v", loads)
			}
		}
		old.end()
		next.end()
	})
}
