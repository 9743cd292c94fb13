package fleet

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

func TestShardOf(t *testing.T) {
	for name, number := range map[string]string{"vk-": "%d", "with-zeros-": "%04d", "zone-2-pool": "%d"} {
		counts := map[int]int{}
		for i := range 100 {
			counts[shardOf(name+fmt.Sprintf(number, i), 8)]++
		}
		for shard := range 8 {
			if counts[shard] != 12 && counts[shard] != 13 {
				t.Errorf("of 100 nodes of %s shard %d has %d, want 12 or 13", name, shard, counts[shard])
			}
		}
	}
	for _, name := range []string{"node", "42", "vk-99999999999999999999"} {
		if got := shardOf(name, 8); got < 0 || got > 7 {
			t.Errorf("node %s is in shard %d of 8", name, got)
		}
	}
}

// serve serves a shard of a fleet of its own until the returned function is called.
func (r *poolsRig) serve(f *Fleet, shard int) (stop func(cause error)) {
	ctx, cancel := context.WithCancelCause(log.WithLogger(r.t.Context(), errorLog{Logger: log.L, mu: &r.mu, logged: &r.errors}))
	over := make(chan struct{})
	go func() {
		defer close(over)
		f.serveShard(ctx, shard)
	}()
	return func(cause error) { cancel(cause); <-over }
}

// shared is a fleet whose nodes are shared. That of the rig, which runs beside it,
// has no nodes.
func (r *poolsRig) shared(fields string, shards int) (f *Fleet, end func()) {
	r.t.Helper()
	r.file += ".shared"
	r.write(fields)
	f = r.newFleet(r.file, shards)
	ctx, cancel := context.WithCancel(r.t.Context())
	over := make(chan error)
	go func() { over <- f.fleet.Run(ctx) }()
	return f, func() { cancel(); <-over }
}

// Two shards of the nodes in a file: both watch it, and what happens to one leaves
// the other alone.
func TestShardsOfPools(t *testing.T) {
	poolsBubble(t, `{pools: []}`, func(r *poolsRig) {
		t := r.t
		f, end := r.shared(`{pools: [{name: a, count: 4, labels: {tier: front}}]}`, 2)
		defer end()
		inShard := map[int][]string{}
		for i := range 4 {
			name := fmt.Sprint("a-", i)
			inShard[shardOf(name, 2)] = append(inShard[shardOf(name, 2)], name)
		}
		synctest.Wait()
		first, second := r.serve(f, 0), r.serve(f, 1)
		r.pass()
		r.want("at first", map[string]string{"a-0": "ready front 20", "a-1": "ready front 20", "a-2": "ready front 20", "a-3": "ready front 20"})

		second(context.Canceled)
		want := map[string]string{}
		for shard, says := range map[int]string{0: "ready front 20", 1: "ready front 20"} {
			for _, name := range inShard[shard] {
				want[name] = says
			}
		}
		r.want("after the end of a shard", want)
		for _, name := range inShard[1] {
			if f.fleet.Node(name) != nil {
				t.Errorf("node %s is still in the fleet", name)
			}
		}
		r.wantErrors("until then")

		r.write(`{pools: [{name: `)
		second = r.serve(f, 1)
		r.pass()
		r.want("a shard that begins with a file that is no use", map[string]string{"a-0": "ready front 20", "a-1": "ready front 20", "a-2": "ready front 20", "a-3": "ready front 20"})

		r.write(`{pools: [{name: a, count: 4, labels: {tier: back}}]}`)
		r.pass()
		r.want("after a change", map[string]string{"a-0": "ready back 20", "a-1": "ready back 20", "a-2": "ready back 20", "a-3": "ready back 20"})
		first(node.ErrHandedOver)
		second(node.ErrHandedOver)
		r.want("handed over", map[string]string{"a-0": "ready back 20", "a-1": "ready back 20", "a-2": "ready back 20", "a-3": "ready back 20"})
		if left := len(f.fleet.Nodes()); left != 0 {
			t.Errorf("%d nodes are still in the fleet", left)
		}
		r.mu.Lock()
		r.errors = nil // those of the broken file
		r.mu.Unlock()
	})
}

// When a shard is lost all its nodes end at once, also those whose removal waits for calls
// that do not return, and while a provider is still being made: another process has them.
func TestLostShardStopsAllItsNodes(t *testing.T) {
	const nodes = 60
	for _, making := range []bool{false, true} {
		t.Run(fmt.Sprint("a provider is being made: ", making), func(t *testing.T) {
			poolsBubble(t, `{pools: []}`, func(r *poolsRig) {
				t := r.t
				held := make(chan struct{})
				var calls atomic.Int64
				r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
					if n.Name == "b-0" {
						<-held
					}
					provider, nodeProvider, c, err := newMock(ctx, n, cfg)
					return countingProvider{stuckProvider{provider, held}, &calls}, nodeProvider, c, err
				}
				pools := fmt.Sprintf(`{pools: [{name: a, count: %d}, {name: b, count: %%d}]}`, nodes)
				f, end := r.shared(fmt.Sprintf(pools, 0), 1)
				defer end()
				stop := r.serve(f, 0)
				r.pass()
				if making {
					r.write(fmt.Sprintf(pools, 1))
					r.pass()
				}
				for i := range maxRemovals {
					r.bind(fmt.Sprint("early-", i), fmt.Sprint("a-", i))
				}
				r.pass()
				over := make(chan struct{})
				go func() { defer close(over); stop(node.ErrHandedOver) }()
				synctest.Wait()
				for i := maxRemovals; i < nodes; i++ {
					r.bind(fmt.Sprint("late-", i), fmt.Sprint("a-", i))
				}
				r.pass()
				if got := calls.Load(); got != maxRemovals {
					t.Errorf("%d pods were created, want the %d from before the shard was lost", got, maxRemovals)
				}
				close(held)
				<-over
			})
		})
	}
}

// countingProvider counts the pods that are created.
type countingProvider struct {
	nodeutil.Provider
	calls *atomic.Int64
}

func (p countingProvider) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	p.calls.Add(1)
	return p.Provider.CreatePod(ctx, pod)
}

// Nodes that end, and whose providers are closed, when they are no longer waited for are not
// forgotten: the shard ends when all providers are closed.
func TestNodesThatEndWhenTheyAreNotWaitedFor(t *testing.T) {
	poolsBubble(t, `{pools: []}`, func(r *poolsRig) {
		t := r.t
		f, end := r.shared(`{pools: [{name: a, count: 2}]}`, 1)
		defer end()
		s := f.newNodeSet(func(string) bool { return true })
		if _, err := s.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.pass()
		if err := f.fleet.Remove(t.Context(), "a-1"); err != nil {
			t.Fatal(err)
		}
		var closed atomic.Int64
		s.nodes["a-1"].closer = closer(func() error { time.Sleep(time.Minute); closed.Add(1); return nil })
		s.nodes["a-0"].closer = closer(func() error { closed.Add(1); return nil })
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_ = s.remove(ended, []string{"a-0", "a-1"}) // the error is that they have not ended yet
		r.pass()
		if f.fleet.Node("a-0") != nil {
			t.Error("a-0 has not ended")
		}
		_ = s.end(t.Context()) // neither is in the fleet
		if closed.Load() != 2 {
			t.Errorf("%d providers were closed, want those of both nodes", closed.Load())
		}
	})
}
