package fleet

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// stuckProvider creates pods for as long as it is held, regardless of the context.
type stuckProvider struct {
	nodeutil.Provider
	held <-chan struct{}
}

func (p stuckProvider) CreatePod(context.Context, *corev1.Pod) error {
	<-p.held
	return nil
}

// A node whose provider does not return holds up neither the other nodes nor later changes, and
// is removed, or made again, when it does.
func TestProviderThatIgnoresTheEndOfItsContext(t *testing.T) {
	notEnded, unusable := "node a-0 has not ended yet", "the nodes stay as they are"
	for name, test := range map[string]struct {
		file, next, ready string
		errors            []string
	}{
		"removed":                                {`{pools: [{name: b, count: 1}]}`, `{pools: [{name: b, count: 2}]}`, "gone 20", []string{notEnded}},
		"replaced":                               {`{pools: [{name: a, count: 1, os: windows}]}`, `{pools: [{name: a, count: 1, providerConfig: {a-0: {cpu: "5"}}}, {name: b, count: 2}]}`, "ready 5", []string{notEnded}},
		"wanted again":                           {`{pools: [{name: b, count: 1}]}`, `{pools: [{name: a, count: 1}, {name: b, count: 2}]}`, "ready 20", []string{notEnded}},
		"removed before the file cannot be used": {`{pools: [{name: b, count: 2}]}`, `{pools: [{name: `, "gone 20", []string{notEnded, unusable}},
		"replaced before the file cannot be used": {`{pools: [{name: a, count: 1, providerConfig: {a-0: {cpu: "5"}}}, {name: b, count: 2}]}`, `{pools: [{name: `, "ready 5", []string{notEnded, unusable}},
	} {
		t.Run(name, func(t *testing.T) {
			var held chan struct{}
			var closed atomic.Int64
			before := func(r *poolsRig) {
				held = make(chan struct{})
				r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
					provider, nodeProvider, c, err := newMock(ctx, n, cfg)
					return stuckProvider{provider, held}, nodeProvider, closer(func() error { closed.Add(1); return c.Close() }), err
				}
			}
			poolsBubbleAfter(t, before, `{pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
				r.bind("p", "a-0")
				r.pass()
				for _, fields := range []string{test.file, test.next} {
					r.write(fields)
					time.Sleep(2 * removalTimeout)
				}
				r.pass()
				nodes := r.nodes()
				if _, ok := nodes["b-1"]; !ok || closed.Load() != 0 {
					t.Errorf("meanwhile there are %d Nodes, and %d providers were closed", len(nodes), closed.Load())
				}
				r.wantErrors("meanwhile", test.errors...)
				close(held)
				time.Sleep(retryInterval)
				r.pass()
				r.want("in the end", map[string]string{"a-0": test.ready, "b-0": "ready 20", "b-1": "ready 20"})
				r.wantErrors("in the end")
				if closed.Load() != 1 {
					t.Errorf("%d providers were closed, want that of the node which has ended", closed.Load())
				}
			})
		})
	}
}

// A pool whose nodes are replaced does not lose them all for one that does not end, or whose provider is not
// closed: their leases would run out. New nodes do not wait for it either.
func TestNodesThatDoNotWaitForOneThatDoesNotEnd(t *testing.T) {
	for _, what := range []string{"call", "close"} {
		t.Run(what, func(t *testing.T) {
			var held chan struct{}
			var made, ended atomic.Bool
			before := func(r *poolsRig) {
				held = make(chan struct{})
				r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
					if n.Name == "a-0" && made.Swap(true) && !ended.Load() {
						t.Error("the node is made again although it has not ended")
					}
					provider, nodeProvider, c, err := newMock(ctx, n, cfg)
					switch {
					case err != nil || n.Name != "a-0" || ended.Load():
						return provider, nodeProvider, c, err
					case what == "close":
						return provider, nodeProvider, closer(func() error { <-held; ended.Store(true); return c.Close() }), err
					}
					return stuckProvider{provider, held}, nodeProvider, closer(func() error { ended.Store(true); return c.Close() }), err
				}
			}
			poolsBubbleAfter(t, before, `{pools: [{name: a, count: 2}]}`, func(r *poolsRig) {
				r.bind("p", "a-0")
				r.pass()
				config := `providerConfig: {a-0: {cpu: "5"}, a-1: {cpu: "5"}}`
				r.write(`{pools: [{name: a, count: 2, ` + config + `}, {name: b, count: 1}]}`)
				r.pass()
				r.pass()
				r.want("meanwhile", map[string]string{"a-0": "ready 20", "a-1": "ready 5", "b-0": "ready 20"})
				r.wantErrors("meanwhile")
				close(held)
				r.pass()
				r.want("once it has ended", map[string]string{"a-0": "ready 5", "a-1": "ready 5", "b-0": "ready 20"})
				r.wantErrors("in the end")
			})
		})
	}
}

// A node that is renamed may have the state directory of the one that it was: that is closed first.
func TestNodesThatWaitForOthersThatEnd(t *testing.T) {
	var closed atomic.Bool
	before := func(r *poolsRig) {
		r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			if n.Name == "b-0" && !closed.Load() {
				t.Error("the provider of the new node is made before that of the earlier one is closed")
			}
			provider, nodeProvider, c, err := newMock(ctx, n, cfg)
			return provider, nodeProvider, closer(func() error { time.Sleep(time.Second); closed.Store(true); return c.Close() }), err
		}
	}
	poolsBubbleAfter(t, before, `{pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
		r.write(`{pools: [{name: b, count: 1}]}`)
		r.pass()
		r.want("renamed", map[string]string{"a-0": "gone 20", "b-0": "ready 20"})
	})
}

// Another process does not take a node before its provider is closed: it would find the state
// directory in use.
func TestNodesAreGivenBackOnceTheirProvidersAreClosed(t *testing.T) {
	var client kubernetes.Interface
	holder := func(node string) string {
		lease, err := nodeutil.NodeLeaseV1Client(client).Get(context.Background(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease.Annotations["virtual-kubelet.io/holder"]
	}
	var closed atomic.Int64
	before := func(r *poolsRig) {
		client = r.client
		r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			provider, nodeProvider, c, err := newMock(ctx, n, cfg)
			return provider, nodeProvider, closer(func() error {
				time.Sleep(5 * time.Second)
				if got := holder(n.Name); got != "rig" {
					t.Errorf("while the provider of %s is closed, %q has the node", n.Name, got)
				}
				closed.Add(1)
				return c.Close()
			}), err
		}
	}
	poolsBubbleAfter(t, before, `{pools: [{name: a, count: 3}]}`, func(r *poolsRig) {
		r.write(`{pools: [{name: a, count: 2}]}`)
		r.pass()
		if got := holder("a-2"); got != "" || closed.Load() != 1 {
			t.Errorf("%q has a node that was removed, and %d providers are closed, want 1", got, closed.Load())
		}
	})
	for _, name := range []string{"a-0", "a-1"} {
		if got := holder(name); got != "" {
			t.Errorf("after the end %q has node %s", got, name)
		}
	}
	if closed.Load() != 3 {
		t.Errorf("%d providers are closed, want 3", closed.Load())
	}
}

// A provider that is long in being closed keeps no other node from being given back at the end.
func TestNodesAreGivenBackWhileAnotherProviderIsClosed(t *testing.T) {
	var client kubernetes.Interface
	given := func() (nodes int) {
		for i := range 3 {
			lease, err := nodeutil.NodeLeaseV1Client(client).Get(context.Background(), fmt.Sprint("a-", i), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if lease.Annotations["virtual-kubelet.io/holder"] == "" {
				nodes++
			}
		}
		return nodes
	}
	before := func(r *poolsRig) {
		client = r.client
		r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			provider, nodeProvider, c, err := newMock(ctx, n, cfg)
			return provider, nodeProvider, closer(func() error {
				if n.Name == "a-1" {
					time.Sleep(time.Hour)
					if got := given(); got != 2 {
						t.Errorf("while one provider is closed, %d nodes are given back, want the 2 others", got)
					}
				}
				return c.Close()
			}), err
		}
	}
	poolsBubbleAfter(t, before, `{pools: [{name: a, count: 3}]}`, func(*poolsRig) {})
	if got := given(); got != 3 {
		t.Errorf("after the end %d nodes are given back, want 3", got)
	}
}
