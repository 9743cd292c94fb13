//go:build integration || containers

package crash

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// machine is a provider with what it runs containers on.
type machine interface {
	provider() string // its name
	config() any      // of the provider
	image(t *testing.T) string
	// running are the containers that run now, with the IDs of those that run.
	running(context.Context) (map[container]sets.Set[string], error)
	// brokenOff are the containers whose start the runtime broke off when its caller was
	// killed, although the command may have run, by their IDs. The ID of one that was
	// removed is no longer there.
	brokenOff(context.Context) (map[string]container, error)
	// left is what there is on the machine of any pod.
	left(t *testing.T) []string
}

// crowd is a machine that has more to kill than the agent.
type crowd interface {
	others(t *testing.T, node string, p *population) []victim
}

// plan is how a test is run.
type plan struct {
	rounds  int
	longest time.Duration // what is killed lives for so long in a round, at the most
	between time.Duration // the mean time from one act on a pod to the next
	size    int           // there are about so many pods at any time
	kept    int           // nobody touches the first of them
	// noHostPath is set for a node that refuses hostPath volumes. Its containers see the files of
	// this machine, but for /tmp.
	noHostPath bool
}

// shortestLife is how long what is killed lives in a round, at the least.
const shortestLife = 10 * time.Millisecond

// usual is the plan for a node whose agent alone is killed.
func usual() plan {
	return plan{rounds: *rounds, longest: 3 * time.Second, between: 300 * time.Millisecond, size: 20, kept: 5}
}

// testCrashes kills the agent of a node again and again, or what else the machine has, with pods
// that come and go all the time.
func testCrashes(t *testing.T, m machine, how plan) {
	random := newRandom(t)
	node := "crash-" + m.provider()
	p := newPopulation(t, random, node, m, how)
	victims := []victim{newAgent(t, node, m)}
	if c, ok := m.(crowd); ok {
		victims = append(victims, c.others(t, node, p)...)
	}
	start := func() {
		for _, v := range victims {
			v.start()
		}
	}
	t.Cleanup(func() { _ = client.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}) })
	stopWatching := watch(t, p, m)
	defer stopWatching()

	p.fill()
	for round := range how.rounds {
		start()
		life := shortestLife + time.Duration(random.Int64N(int64(how.longest-shortestLife)))
		end := time.Now().Add(life)
		for time.Now().Before(end) {
			time.Sleep(min(time.Until(end), time.Duration(random.Int64N(int64(2*how.between)))))
			p.act()
		}
		killed := inTurn(victims, round)
		for _, v := range killed {
			v.kill()
		}
		p.act() // while it is down
		p.checkStarts()
		if t.Failed() {
			t.Logf("round %d: after %v %T was killed", round+1, life, killed)
			break
		}
	}
	start()
	eventually(t, "every pod is where it should end", p.unsettled)
	p.checkEnds()
	p.deleteAll()
	eventually(t, "all pods are gone", p.unsettled)
	eventually(t, "nothing is left on the machine", func() []string { return m.left(t) })
	stopWatching()
	p.checkStarts()
	for _, v := range victims {
		v.stop()
	}
	if left := m.left(t); len(left) > 0 {
		t.Errorf("left behind after the agent has ended: %q", left)
	}
	lost := 0
	for _, m := range p.members() {
		if m.lost {
			lost++
		}
	}
	t.Logf("%d pods, %d starts of containers, %d pods lost their machine", len(p.members()), len(p.starts()), lost)
}

// inTurn returns who is killed in a round: one after the other, and then all at once.
func inTurn(victims []victim, round int) []victim {
	if i := round % (len(victims) + 1); i < len(victims) {
		return victims[i : i+1]
	}
	return victims
}

// newRandom has the same choices made again, if it is given the same seed; when
// they are made depends on the machine.
func newRandom(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-crash.seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}
