package shard_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/shard"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestShardsOfAKilledProcessAreTakenBeforeTheNodesLeasesRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, 1)
		a, b, c := w.join("a"), w.join("b"), w.join("c")
		pass(time.Minute)
		w.wantBalance("at first", a, b, c)
		moves := w.moves
		pass(10 * time.Minute)
		if w.moves != moves {
			t.Errorf("at rest %d shards have moved", w.moves-moves)
		}
		c.kill()
		// A node has renewed its lease of 40 s at most 10 s before.
		pass(25 * time.Second)
		w.wantBalance("after the kill", a, b)
		if w.moves != moves {
			t.Errorf("%d shards of the others have moved", w.moves-moves)
		}
		pass(10 * time.Minute)
		list, _ := a.List(t.Context(), metav1.ListOptions{})
		if len(list.Items) != 10+2 {
			t.Errorf("%d leases are left, want one for each shard and each process", len(list.Items))
		}

		back := w.join("c2")
		pass(time.Minute)
		w.wantBalance("once it is back", a, b, back)
		if got := w.moves - moves; got != 3 {
			t.Errorf("%d shards have moved, want just the 3 that it is to have", got)
		}
		for _, p := range []*process{a, b, back} {
			p.end()
		}
	})
}

func TestShardsOfAProcessThatEndsAreTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8, 2)
		a, b := w.join("a"), w.join("b")
		pass(time.Minute)
		before := w.ended[node.ErrHandedOver]
		b.end()
		pass(5 * time.Second)
		w.wantBalance("after the end of one", a)
		if got := w.ended[node.ErrHandedOver] - before; got != 4 {
			t.Errorf("%d shards were handed over, want 4", got)
		}
		a.end()
		if got := w.ended[context.Canceled]; got != 8 {
			t.Errorf("%d shards of the last process ended for good, want 8", got)
		}
		b = w.join("b2")
		pass(2 * time.Second)
		w.wantBalance("a process that comes later", b)
		b.end()
	})
}

// A process that cannot reach the API server stops in time, and takes part again
// when it can.
func TestProcessThatIsCutOffStops(t *testing.T) {
	for _, way := range []int{wayRefused, wayHangs, wayDeaf} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 6, 3)
			a, b := w.join("a"), w.join("b")
			pass(time.Minute)
			a.setWay(way)
			pass(12 * time.Second)
			if loads, _ := w.loads(); loads["a"] != 0 {
				t.Errorf("after 12 s without the API server it still serves %d shards", loads["a"])
			}
			pass(time.Minute)
			w.wantBalance("without it", b)
			a.setWay(wayOpen)
			pass(2 * time.Minute)
			w.wantBalance("when it is back", a, b)
			a.end()
			b.end()
		})
	}
}

// Two processes that go by different numbers of shards would run nodes twice.
func TestProcessesWithAnotherNumberOfShardsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, 4)
		old := w.join("old")
		pass(time.Minute)
		w.mu.Lock()
		w.count = 6
		w.mu.Unlock()
		next := w.join("next")
		pass(5 * time.Minute)
		if loads, _ := w.loads(); loads["old"] != 4 || loads["next"] != 0 {
			t.Errorf("the shards are served by %v", loads)
		}
		old.end()
		pass(10 * time.Second)
		w.wantBalance("when the old one has gone", next)
		if got := w.ended[node.ErrHandedOver]; got != 4 {
			t.Errorf("%d shards were handed over, want 4", got)
		}
		next.end()
	})
}

// What killed processes leave that went by more shards is waited for once, and not by each
// process that comes later, nor again when another one has removed it.
func TestLeasesOfMoreShardsThanThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6, 12)
		before := []*process{w.join("old-0"), w.join("old-1")}
		pass(time.Minute)
		for _, p := range before {
			p.kill()
		}
		w.mu.Lock()
		w.count = 4
		w.mu.Unlock()
		a := w.join("a")
		pass(20 * time.Second)
		b := w.join("b") // has to wait for longer before it would remove them
		for begin := time.Now(); w.surplus() > 0 && time.Since(begin) < 5*time.Minute; {
			pass(100 * time.Millisecond)
		}
		pass(5 * time.Second)
		a.end()
		pass(5 * time.Second)
		w.wantBalance("when the one that has removed them has ended", b)
		b.end()
		c := w.join("c")
		pass(5 * time.Second)
		w.wantBalance("a process that comes later", c)
		if n := w.surplus(); n > 0 {
			t.Errorf("%d leases of shards that there are not are left", n)
		}
		c.end()
	})
}

func TestConfigThatIsNoUse(t *testing.T) {
	good := shard.Config{Leases: &process{}, Name: "vk", Identity: "me", Shards: 1, Serve: func(context.Context, int) {}}
	for name, change := range map[string]func(*shard.Config){
		"no client":       func(c *shard.Config) { c.Leases = nil },
		"no identity":     func(c *shard.Config) { c.Identity = "" },
		"no name":         func(c *shard.Config) { c.Name = "" },
		"no shards":       func(c *shard.Config) { c.Shards = 0 },
		"short lease":     func(c *shard.Config) { c.LeaseDuration = time.Second },
		"fraction of one": func(c *shard.Config) { c.LeaseDuration = 3500 * time.Millisecond },
	} {
		bad := good
		change(&bad)
		if err := shard.Run(t.Context(), bad); !errdefs.IsInvalidInput(err) {
			t.Errorf("%s: got %v, want an error of class InvalidInput", name, err)
		}
	}
}

// Random histories of processes that come, end, are killed and cut off, and of leases
// that somebody deletes or takes the label from: never do two serve a shard (see process.serve), and at rest each
// has its share.
func TestRandomHistories(t *testing.T) {
	histories := 40
	if testing.Short() {
		histories = 10
	}
	for seed := range histories {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { history(t, uint64(seed)) })
		})
	}
}

func history(t *testing.T, seed uint64) {
	w := newWorld(t, 1+int(seed)%17, seed)
	var alive []*process
	for step := range 40 {
		pick := 0
		if len(alive) > 0 {
			pick = w.intn(len(alive))
		}
		switch action := w.intn(9); {
		case action == 8:
			w.unlabelSome()
		case action >= 6:
			w.deleteSome(w.intn(3))
		case len(alive) == 0 || action < 2 && len(alive) < 8:
			if !w.known() {
				break
			}
			alive = append(alive, w.join(nameOf(step)))
		case action == 2:
			alive[pick].end()
			alive = slices.Delete(alive, pick, pick+1)
		case action == 3:
			alive[pick].kill()
			alive = slices.Delete(alive, pick, pick+1)
		default:
			alive[pick].setWay(w.intn(4))
		}
		pass(time.Duration(w.intn(30_000)) * time.Millisecond)
	}
	if len(alive) == 0 {
		pass(time.Minute)
		alive = append(alive, w.join("last"))
	}
	for _, p := range alive {
		p.setWay(wayOpen)
	}
	pass(2 * time.Minute)
	w.wantBalance("at rest", alive...)
	moves := w.moves
	pass(time.Minute)
	if w.moves != moves {
		t.Errorf("at rest %d shards have moved", w.moves-moves)
	}
	for _, p := range alive {
		p.end()
	}
}

// deleteSome deletes each lease, every second one, or about one, if all have seen it.
func (w *world) deleteSome(how int) {
	w.delete(func(lease *coordinationv1.Lease) bool {
		n := []int{1, 2, len(w.leases)}[how]
		return w.random.IntN(n) == 0 && (!isShard(lease.Name) || w.wasSeen(lease))
	})
}

// unlabelSome takes the label from every second lease; not from those of shards while a process
// has seen none, for which this would be the first start.
func (w *world) unlabelSome() {
	w.unlabel(func(lease *coordinationv1.Lease) bool {
		first := slices.ContainsFunc(w.members, func(p *process) bool { return !p.dead && !p.saw.any })
		return w.random.IntN(2) == 0 && !(first && ofShards(lease))
	})
}
