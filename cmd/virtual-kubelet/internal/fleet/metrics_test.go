package fleet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// wantReloads compares the metrics of the file.
func (r *poolsRig) wantReloads(what string, of *reloads, successful float64, at time.Time) {
	r.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(of)
	families, err := registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	want := map[string]float64{"vk_config_last_reload_successful": successful, "vk_config_last_reload_success_timestamp_seconds": float64(at.Unix())}
	if !maps.Equal(got, want) {
		r.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestReloads(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of the bubble's clock
	poolsBubble(t, `{pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
		r.wantReloads("at first", r.fleet.reloads, 1, start)
		time.Sleep(time.Hour)
		r.wantReloads("while nothing changes", r.fleet.reloads, 1, start)
		r.write(`{pools: [{name: a, count: 1, cuont: 2}]}`)
		r.pass()
		r.wantReloads("with a bad file", r.fleet.reloads, 0, start)
		r.write(`{pools: [{name: a, count: 1}]}`)
		changed := time.Now()
		r.pass()
		r.wantReloads("with the file as it was", r.fleet.reloads, 1, changed.Add(2*pollInterval))

		journal := filepath.Join(filepath.Dir(r.file), "later", "journal")
		r.write(fmt.Sprintf(`{pools: [{name: a, count: 1}, {name: b, count: 1, providerConfig: {b-0: {journal: %q}}}]}`, journal))
		r.pass()
		r.wantReloads("with a node that cannot be made", r.fleet.reloads, 0, changed.Add(2*pollInterval))
		if err := os.Mkdir(filepath.Dir(journal), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryInterval)
		r.pass()
		if got := r.fleet.reloads.succeeded; got.Before(changed.Add(retryInterval)) {
			t.Errorf("the file was last used %v after it changed, which is before the node could be made", got.Sub(changed))
		}
	})
}

// Of several shards all have to have applied the file.
func TestReloadsOfShards(t *testing.T) {
	poolsBubble(t, `{pools: []}`, func(r *poolsRig) {
		journal := filepath.Join(filepath.Dir(r.file), "later", "journal")
		f, end := r.shared(fmt.Sprintf(`{pools: [{name: a, count: 2, providerConfig: {a-0: {journal: %q}}}]}`, journal), 2)
		defer end()
		first, second := r.serve(f, shardOf("a-0", 2)), r.serve(f, shardOf("a-1", 2))
		r.pass()
		if held := f.shards.held.Load(); held != 2 {
			t.Errorf("%d shards are held, want 2", held)
		}
		if len(f.reloads.failing) != 1 {
			t.Errorf("%d shards have not applied the file, want that of the node that cannot be made", len(f.reloads.failing))
		}
		first(node.ErrHandedOver)
		if len(f.reloads.failing) != 0 {
			t.Error("a shard that another process has counts")
		}
		if held := f.shards.held.Load(); held != 1 {
			t.Errorf("%d shards are held after one was given away, want 1", held)
		}
		second(node.ErrHandedOver)
		r.wantErrors("of the node", "cannot open the journal", "cannot open the journal")
	})
}

// A pool that was wrong when a process with shards began does not count for ever: each
// shard loads the file itself.
func TestReloadsOfShardsAfterABadStart(t *testing.T) {
	poolsBubble(t, `{pools: []}`, func(r *poolsRig) {
		f, end := r.shared(`{pools: [{name: a, count: 1}, {name: b, count: 1, os: beos}]}`, 1)
		defer end()
		began := f.reloads.succeeded
		r.wantReloadState(f, "at the start", 1)
		first := r.serve(f, 0)
		r.pass()
		r.wantReloadState(f, "while the pool is wrong", 1)
		r.write(`{pools: [{name: a, count: 1}, {name: b, count: 1}]}`)
		r.pass()
		r.wantReloadState(f, "once it is right", 0)
		if !f.reloads.succeeded.After(began) {
			t.Error("the last success is not that of the file that is right")
		}
		first(node.ErrHandedOver)
		r.mu.Lock()
		r.errors = nil // those of the pool
		r.mu.Unlock()
	})
}

// wantReloadState compares how many sets of nodes are not as the file wants them.
func (r *poolsRig) wantReloadState(f *Fleet, what string, failing int) {
	r.t.Helper()
	f.reloads.mu.Lock()
	defer f.reloads.mu.Unlock()
	if got := len(f.reloads.failing); got != failing {
		r.t.Errorf("%s: the file is not applied to %d sets of nodes, want %d", what, got, failing)
	}
}
