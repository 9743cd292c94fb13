package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	stdruntime "runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestNodesChangeWithTheFile(t *testing.T) {
	poolsBubble(t, `{pools: [{name: a, count: 2, labels: {tier: front}}, {name: b, count: 1, capacity: {cpu: 7}}]}`, func(r *poolsRig) {
		r.want("at first", map[string]string{"a-0": "ready front 20", "a-1": "ready front 20", "b-0": "ready 7"})
		provider := r.fleet.fleet.Node("a-0")

		r.write(`{pools: [{name: a, count: 2, labels: {tier: back}, capacity: {cpu: 3}, taints: [{key: new, effect: NoSchedule}]}, {name: b, count: 1}, {name: c, count: 1, nodeName: single}]}`)
		r.pass()
		r.want("after a change", map[string]string{"a-0": "ready back 3", "a-1": "ready back 3", "b-0": "ready 20", "single": "ready 20"})
		if taints := r.nodes()["a-0"].Spec.Taints; len(taints) != 1 || taints[0].Key != "new" {
			t.Errorf("the taints are %v, want the new one", taints)
		}
		if r.fleet.fleet.Node("a-0") != provider {
			t.Error("a node was made again although what has changed can change in place")
		}

		r.write(`{pools: [{name: a, count: 1, os: windows}]}`)
		r.pass()
		r.want("nodes that are gone keep their Nodes", map[string]string{"a-0": "ready 20", "a-1": "gone back 3", "b-0": "gone 20", "single": "gone 20"})
		if os := r.nodes()["a-0"].Status.NodeInfo.OperatingSystem; os != "windows" {
			t.Errorf("the operating system is %s", os)
		}
		if known := len(r.fleet.all.nodes); known != 1 || len(r.fleet.fleet.Nodes()) != 1 {
			t.Errorf("%d nodes are known, and %d in the fleet, want 1", known, len(r.fleet.fleet.Nodes()))
		}

		r.write(`{name: edge, pools: [{name: a, count: 1, os: windows}]}`)
		r.pass()
		r.write(`{name: edge, deleteNodes: true, pools: []}`)
		r.passStopped()
		r.want("those that are gone before the file has a name keep their Nodes, as none knows whose they are", map[string]string{"a-1": "gone back 3", "b-0": "gone 20", "single": "gone 20"})
		r.wantErrors("all of it")
	})
}

func TestNodesThatAreGoneLeaveNothing(t *testing.T) {
	few := `{name: edge, deleteNodes: true, pools: [{name: a, count: 1}]}`
	poolsBubble(t, few, func(r *poolsRig) {
		cycle := func() int {
			r.write(`{name: edge, deleteNodes: true, pools: [{name: a, count: 50}]}`)
			time.Sleep(time.Minute)
			if got := len(r.nodes()); got != 50 {
				r.t.Fatalf("there are %d Nodes, want 50", got)
			}
			r.write(few)
			r.passStopped()
			if len(r.nodes()) != 1 || len(r.fleet.all.nodes) != 1 || len(r.fleet.fleet.Nodes()) != 1 {
				r.t.Errorf("%d Nodes are there, %d nodes are known and %d in the fleet, want 1", len(r.nodes()), len(r.fleet.all.nodes), len(r.fleet.fleet.Nodes()))
			}
			synctest.Wait()
			return stdruntime.NumGoroutine()
		}
		if first, second := cycle(), cycle(); second-first >= 49 {
			r.t.Errorf("%d goroutines after 49 nodes have left, %d after as many again", first, second)
		}
	})
}

// Half a file, or none for a moment, is what editors and copies leave.
func TestFileThatIsBeingWritten(t *testing.T) {
	all := `{name: edge, deleteNodes: true, pools: [{name: a, count: 2}]}`
	poolsBubble(t, all, func(r *poolsRig) {
		ready := map[string]string{"a-0": "ready 20", "a-1": "ready 20"}
		time.Sleep(pollInterval / 2)
		for range 20 {
			r.write(`{name: edge, deleteNodes: true, pools: []}`)
			time.Sleep(pollInterval)
			r.write(all)
			time.Sleep(pollInterval)
		}
		r.want("while it is written", ready)
		if len(r.client.Actions()) == 0 {
			t.Fatal("no requests are seen")
		}
		for _, action := range r.client.Actions() {
			if action.Matches("delete", "nodes") {
				t.Error("a Node was deleted for half a file")
			}
		}
		if err := os.Remove(r.file); err != nil {
			t.Fatal(err)
		}
		r.pass()
		r.want("without a file", ready)
		r.wantErrors("without a file", "--config cannot be read")
		other := r.file + ".new"
		writePools(t, other, `{pools: [{name: a, count: 3}]}`)
		if err := os.Rename(other, r.file); err != nil {
			t.Fatal(err)
		}
		r.pass()
		ready["a-2"] = "ready 20"
		r.want("with another file in its place", ready)
	})
}

func TestBadFileChangesNothing(t *testing.T) {
	poolsBubble(t, `{pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
		r.write(`{pools: [{name: a, count: -1}, {name: b, count: 1, provider: nope}]}`)
		r.pass()
		r.pass()
		r.want("a bad file", map[string]string{"a-0": "ready 20"})
		r.wantErrors("a bad file is logged once", "pools[b].provider")
		r.write(`{pools: [{name: b, count: 1}]}`)
		r.pass()
		r.want("a good file", map[string]string{"a-0": "gone 20", "b-0": "ready 20"})
		r.wantErrors("a good file")
	})
}

// A file that is as it was before a mistake is logged, although no node changes.
func TestFileThatIsReverted(t *testing.T) {
	good := `{pools: [{name: a, count: 1}]}`
	poolsBubble(t, good, func(r *poolsRig) {
		logged := func() (count int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, line := range r.infos {
				if line == "The file of the node pools can be used again" {
					count++
				}
			}
			return count
		}
		r.write(`{pools: [{name: a, count: -1}]}`)
		r.pass()
		r.wantErrors("a bad file", "pools[a].count")
		if logged() != 0 {
			t.Error("a bad file is logged as one that can be used")
		}
		r.write(good)
		r.pass()
		r.pass()
		if logged() != 1 {
			t.Errorf("it was logged %d times, want once", logged())
		}
	})
}

// What fails for one node is tried again, and holds up no other.
func TestNodeThatCannotBeMade(t *testing.T) {
	poolsBubble(t, `{pools: []}`, func(r *poolsRig) {
		journal := filepath.Join(filepath.Dir(r.file), "later", "journal")
		r.write(fmt.Sprintf(`{pools: [{name: a, count: 1, providerConfig: {a-0: {journal: %q}}}, {name: b, count: 1}]}`, journal))
		r.pass()
		r.want("one of two", map[string]string{"b-0": "ready 20"})
		time.Sleep(5 * retryInterval)
		r.wantErrors("logged once", "node a-0: cannot open the journal")
		if err := os.Mkdir(filepath.Dir(journal), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryInterval)
		r.pass()
		r.want("both", map[string]string{"a-0": "ready 20", "b-0": "ready 20"})
	})
}

func TestNodeThatCannotBeDeleted(t *testing.T) {
	poolsBubble(t, `{name: edge, deleteNodes: true, pools: [{name: a, count: 3}]}`, func(r *poolsRig) {
		r.keepNodes.Store(true)
		r.write(`{name: edge, deleteNodes: true, pools: [{name: a, count: 1}]}`)
		r.passStopped()
		r.want("refused", map[string]string{"a-0": "ready 20", "a-1": "gone 20", "a-2": "gone 20"})
		r.wantErrors("refused", "cannot delete Node a-")
		r.write(`{name: edge, deleteNodes: true, pools: [{name: a, count: 2}]}`)
		r.pass()
		r.keepNodes.Store(false)
		r.client.ClearActions()
		r.passStopped()
		if r.deleted("a-1") {
			r.t.Error("the Node of a node that has come back was deleted")
		}
		r.want("deleted, but for the node that has come back", map[string]string{"a-0": "ready 20", "a-1": "ready 20"})

		r.keepNodes.Store(true)
		r.write(`{name: edge, deleteNodes: true, pools: [{name: a, count: 1}]}`)
		r.passStopped()
		r.write(`{name: edge, pools: [{name: a, count: 1}]}`)
		r.pass()
		r.keepNodes.Store(false)
		r.passStopped()
		r.want("not to be deleted any more", map[string]string{"a-0": "ready 20", "a-1": "gone 20"})
	})
}
