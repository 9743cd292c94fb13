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

// The agent lives this long in a round.
const (
	shortestLife = 10 * time.Millisecond
	longestLife  = 3 * time.Second
)

// betweenActs is the mean time from one act on a pod to the next.
const betweenActs = 300 * time.Millisecond

// testCrashes kills the agent of a node again and again, with pods that come and
// go all the time.
func testCrashes(t *testing.T, m machine) {
	random := newRandom(t)
	node := "crash-" + m.provider()
	a, p := newAgent(t, node, m), newPopulation(t, random, node, m)
	t.Cleanup(func() { _ = client.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}) })
	stopWatching := watch(t, p, m)
	defer stopWatching()

	p.fill()
	for round := range *rounds {
		a.start()
		life := shortestLife + time.Duration(random.Int64N(int64(longestLife-shortestLife)))
		end := time.Now().Add(life)
		for time.Now().Before(end) {
			time.Sleep(min(time.Until(end), time.Duration(random.Int64N(int64(2*betweenActs)))))
			p.act()
		}
		a.kill()
		p.act() // while the agent is down
		p.checkStarts()
		if t.Failed() {
			t.Logf("round %d: the agent had lived for %v", round+1, life)
			break
		}
	}
	a.start()
	eventually(t, "every pod is where it should end", p.unsettled)
	p.checkEnds()
	p.deleteAll()
	eventually(t, "all pods are gone", p.unsettled)
	eventually(t, "nothing is left on the machine", func() []string { return m.left(t) })
	stopWatching()
	p.checkStarts()
	a.stop()
	if left := m.left(t); len(left) > 0 {
		t.Errorf("left behind after the agent has ended: %q", left)
	}
	t.Logf("%d pods, %d starts of containers", len(p.members()), len(p.starts()))
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
