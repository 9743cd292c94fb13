package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// A provider that cannot be made at the start does not keep the others from running,
// and is tried again, as when the file changes later.
func TestNodeThatCannotBeMadeAtTheStart(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "later", "journal")
	poolsBubble(t, fmt.Sprintf(`{pools: [{name: a, count: 1, providerConfig: {a-0: {journal: %q}}}, {name: b, count: 1}]}`, journal), func(r *poolsRig) {
		r.want("one of two", map[string]string{"b-0": "ready 20"})
		r.mu.Lock()
		if text := strings.Join(r.errors, "\n"); !strings.Contains(text, "node a-0: cannot open the journal") {
			t.Errorf("logged %q, want why a node could not be made", text)
		}
		r.errors = nil
		r.mu.Unlock()
		time.Sleep(5 * retryInterval)
		r.wantErrors("is logged once")
		if err := os.Mkdir(filepath.Dir(journal), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryInterval)
		r.pass()
		r.want("both", map[string]string{"a-0": "ready 20", "b-0": "ready 20"})
	})
}

// Providers that are away, and are waited for, are waited for together. The nodes of others run meanwhile: their
// leases, which the process before has renewed, do not run out.
func TestProvidersThatAreLongInBeingMade(t *testing.T) {
	var asked, made atomic.Int32
	before := func(r *poolsRig) {
		there := time.Now().Add(time.Minute)
		r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			if n.Name == "b-0" {
				return newMock(ctx, n, cfg)
			}
			asked.Add(1)
			if err := periodic.Sleep(ctx, time.Until(there)); err != nil {
				return nil, nil, nil, err
			}
			if n.Name != "a-0" {
				return nil, nil, nil, errors.New("it is away")
			}
			made.Add(1)
			return newMock(ctx, n, cfg)
		}
	}
	poolsBubbleAfter(t, before, `{name: edge, deleteNodes: true, pools: [{name: a, count: 200}, {name: b, count: 1}]}`, func(r *poolsRig) {
		for range 3 { // until 55 s after the start
			r.want("meanwhile", map[string]string{"b-0": "ready 20"})
			lease, err := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(r.t.Context(), "b-0", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(lease.Spec.RenewTime.Time); age > 15*time.Second {
				t.Errorf("the lease was renewed %v ago", age)
			}
			r.pass()
		}
		r.wantErrors("meanwhile")
		if n := asked.Load(); n != 200 {
			t.Errorf("meanwhile providers were asked for %d times", n)
		}
		r.pass()
		r.want("in the end", map[string]string{"a-0": "ready 20", "b-0": "ready 20"})
		if n := made.Load(); n != 1 {
			t.Errorf("the provider was made %d times", n)
		}
		if names, err := r.fleet.Made(r.t.Context()); err != nil || !slices.Equal(names, []string{"a-0", "b-0"}) {
			t.Errorf("the nodes %v were made at the start: %v", names, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.errors) == 0 || !strings.Contains(r.errors[0], "node a-1: it is away") {
			t.Errorf("logged %q", r.errors)
		}
	})
}

// A process that is asked to end while it waits for some providers does not wait on: whether its nodes run or not.
func TestEndWhileSomeProvidersAreBeingMade(t *testing.T) {
	for _, run := range []bool{true, false} {
		file := filepath.Join(t.TempDir(), "pools.yaml")
		synctest.Test(t, func(t *testing.T) {
			r := &poolsRig{t: t, file: file, client: fake.NewSimpleClientset()}
			r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
				if n.Name == "a-0" {
					return nil, nil, nil, periodic.Sleep(ctx, time.Hour)
				}
				return newMock(ctx, n, cfg)
			}
			r.write(`{pools: [{name: a, count: 1}, {name: b, count: 1}]}`)
			began := time.Now()
			f := r.newFleet(file, 0)
			if run {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := f.Run(ctx); err != nil {
					t.Error(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A process that is asked to end while it waits for providers does not wait on.
func TestEndWhileProvidersAreBeingMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pools.yaml")
	synctest.Test(t, func(t *testing.T) {
		r := &poolsRig{t: t, file: file, client: fake.NewSimpleClientset()}
		r.write(`{pools: [{name: a, count: 5}]}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := New(ctx, Config{
			Nodes:      nodeutil.FleetConfig{Client: r.client},
			NodeConfig: r.nodeConfig,
			NewProvider: func(ctx context.Context, _ nodepools.Node, _ nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return nil, nil, nil, errors.New("it is away")
			},
			File: NewFile(mockOptions(file), nil),
		})
		if took := time.Since(began); err == nil || took > time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A pool with which something is wrong does not keep the others from running, and no
// Nodes are deleted until all is well.
func TestBadPoolAtTheStart(t *testing.T) {
	before := func(r *poolsRig) { r.leave("b-0", "edge", "KubeletStopped", corev1.ConditionFalse) }
	poolsBubbleAfter(t, before, `{name: edge, deleteNodes: true, pools: [{name: a, count: 1}, {name: b, count: 1, os: beos}]}`, func(r *poolsRig) {
		r.passStopped()
		if nodes := r.nodes(); len(nodes) != 2 || nodes["a-0"].Status.Conditions == nil {
			t.Errorf("there are the Nodes %v, want a-0, and b-0 as it was left", nodes)
		}
		r.mu.Lock()
		if text := strings.Join(r.errors, "\n"); !strings.Contains(text, "pools[b].os") {
			t.Errorf("logged %q, want what is wrong with the pool", text)
		}
		r.errors = nil
		r.mu.Unlock()
		r.write(`{name: edge, deleteNodes: true, pools: [{name: a, count: 1}, {name: b, count: 1}]}`)
		r.pass()
		r.want("a good file", map[string]string{"a-0": "ready 20", "b-0": "ready 20"})
		r.wantErrors("a good file")
	})
}

// A pool whose provider changes while the process runs keeps its Nodes, which stay
// ready.
func TestPoolOfAnotherConfigurationStaysReady(t *testing.T) {
	poolsBubble(t, `{pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
		r.client.ClearActions()
		r.write(`{pools: [{name: a, count: 1, providerConfig: {a-0: {cpu: "5"}}}]}`)
		r.pass()
		r.want("after the change", map[string]string{"a-0": "ready 5"})
		for _, action := range r.client.Actions() {
			if patch, ok := action.(clienttesting.PatchAction); ok && strings.Contains(string(patch.GetPatch()), "KubeletStopped") {
				t.Error("the node was marked not ready in between")
			}
		}
	})
}

// A node whose pool gets another provider keeps its Node also if that provider cannot be made at once: whether
// the file can be used meanwhile, or not.
func TestPoolOfAnotherProviderThatFailsAtFirst(t *testing.T) {
	for _, meanwhile := range []string{"", `{pools: [{name: `} {
		journal := filepath.Join(t.TempDir(), "later", "journal")
		poolsBubble(t, `{pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
			r.write(fmt.Sprintf(`{pools: [{name: a, count: 1, provider: other, providerConfig: {a-0: {journal: %q}}}]}`, journal))
			r.pass()
			r.wantErrors("at first", "node a-0: cannot open the journal")
			if meanwhile != "" {
				r.write(meanwhile)
				r.pass()
				r.wantErrors("a bad file", "the nodes stay as they are")
			}
			if err := os.Mkdir(filepath.Dir(journal), 0o700); err != nil {
				t.Fatal(err)
			}
			time.Sleep(retryInterval)
			r.pass()
			r.want("in the end", map[string]string{"a-0": "ready 20"})
			if got := r.nodes()["a-0"].Labels[node.LabelProvider]; got != "other" {
				t.Errorf("the Node is that of provider %s", got)
			}
			if len(r.fleet.all.adopt) != 0 {
				t.Errorf("%v are to be adopted still", r.fleet.all.adopt)
			}
		})
	}
}

// A Node that is refused stays refused when its pool changes.
func TestRefusedNodeOfAPoolThatChanges(t *testing.T) {
	before := func(r *poolsRig) {
		r.leave("a-0", "", "KubeletReady", corev1.ConditionTrue)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a-0"}} // a kubelet's names no process
		if _, err := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(r.t.Context(), lease, metav1.CreateOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
	poolsBubbleAfter(t, before, `{pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
		r.wantErrors("at first", "not made by a virtual kubelet")
		for _, fields := range []string{`providerConfig: {a-0: {cpu: "5"}}`, `provider: other`, `os: windows`} {
			r.write(`{pools: [{name: a, count: 1, ` + fields + `}]}`)
			r.pass()
			r.wantErrors(fields, "not made by a virtual kubelet")
			if got := r.nodes()["a-0"]; len(got.Labels)+len(got.Annotations) != 0 {
				t.Errorf("%s: the Node was taken over: %v %v", fields, got.Labels, got.Annotations)
			}
		}
	})
}

// A node whose Node is to be adopted still when its pool changes once more adopts it.
func TestPoolThatChangesBeforeItsNodeIsAdopted(t *testing.T) {
	var away atomic.Bool
	before := func(r *poolsRig) {
		fakeapi.React(&r.client.Fake, "get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the API server is overloaded")
		})
	}
	poolsBubbleAfter(t, before, `{pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
		away.Store(true)
		for _, config := range []string{`{}`, `{cpu: "5"}`} {
			r.write(`{pools: [{name: a, count: 1, provider: other, providerConfig: {a-0: ` + config + `}}]}`)
			r.pass()
			if got := r.nodes()["a-0"].Labels[node.LabelProvider]; got != "mock" {
				t.Errorf("while its lease cannot be read the Node is that of provider %s", got)
			}
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if got := r.nodes()["a-0"].Labels[node.LabelProvider]; got != "other" {
			t.Errorf("the Node is that of provider %s", got)
		}
		r.want("in the end", map[string]string{"a-0": "ready 5"})
		r.wantErrors("in the end")
	})
}

// A provider that fails at the start is tried again also while something is wrong with
// another pool.
func TestProviderThatFailsBesideABadPool(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "later", "journal")
	poolsBubble(t, fmt.Sprintf(`{pools: [{name: a, count: 1, providerConfig: {a-0: {journal: %q}}}, {name: b, count: 1, os: beos}, {name: c, count: 1}]}`, journal), func(r *poolsRig) {
		r.want("one of three", map[string]string{"c-0": "ready 20"})
		if err := os.Mkdir(filepath.Dir(journal), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryInterval)
		r.pass()
		r.want("those with which nothing is wrong", map[string]string{"a-0": "ready 20", "c-0": "ready 20"})
	})
}

// A node that has failed by itself is made again; the other nodes of the fleet do not notice.
func TestNodeOfAFleetThatHasFailedComesBack(t *testing.T) {
	var failing atomic.Bool
	var made, closed atomic.Int64
	before := func(r *poolsRig) {
		ended, cancel := context.WithCancel(r.t.Context())
		cancel()
		fakeapi.React(&r.client.Fake, "get", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if name := action.(clienttesting.GetAction).GetName(); name == "a-0" && failing.Load() {
				_, _ = r.fleet.fleet.Node(name).PodController().Start(ended, 1) // so that the node cannot
			}
			return false, nil, nil
		})
		r.newProvider = func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			provider, nodeProvider, c, err := newMock(ctx, n, cfg)
			made.Add(1)
			return provider, nodeProvider, closer(func() error { closed.Add(1); return c.Close() }), err
		}
		failing.Store(true)
	}
	poolsBubbleAfter(t, before, `{pools: [{name: a, count: 2}]}`, func(r *poolsRig) {
		another := r.fleet.fleet.Node("a-1")
		time.Sleep(10 * retryInterval)
		synctest.Wait()
		if made.Load() < 5 || made.Load() > 13 || closed.Load() != made.Load()-2 {
			t.Errorf("the providers of two nodes, of which one fails, are made %d times and closed %d times", made.Load(), closed.Load())
		}
		failing.Store(false)
		time.Sleep(retryInterval)
		r.pass()
		r.want("in the end", map[string]string{"a-0": "ready 20", "a-1": "ready 20"})
		if r.fleet.fleet.Node("a-1") != another {
			t.Error("another node of the fleet was added again, too")
		}
	})
}

// A node that another process took, as this one stood still, comes back when that
// process has ended; the other nodes of the fleet do not notice.
func TestNodeOfAFleetThatWasTakenComesBack(t *testing.T) {
	var conflict atomic.Bool // the fake knows no versions
	before := func(r *poolsRig) {
		fakeapi.React(&r.client.Fake, "update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			l, ok := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			refused := ok && l.Name == "a-0" && conflict.Swap(false)
			return refused, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "a-0", errors.New("changed"))
		})
	}
	poolsBubbleAfter(t, before, `{pools: [{name: a, count: 2}]}`, func(r *poolsRig) {
		leases := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		holder := func() string {
			lease, err := leases.Get(r.t.Context(), "a-0", metav1.GetOptions{})
			if err != nil {
				r.t.Fatal(err)
			}
			return lease.Annotations["virtual-kubelet.io/holder"]
		}
		ours := holder()
		lease, err := leases.Get(t.Context(), "a-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease = lease.DeepCopy()
		lease.Annotations["virtual-kubelet.io/holder"] = "other"
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		conflict.Store(true)
		another := r.fleet.fleet.Node("a-1")
		time.Sleep(20 * time.Second)
		if got := holder(); got != "other" {
			t.Errorf("the lease is held by %s, want the other process", got)
		}
		time.Sleep(60 * time.Second)
		if got := holder(); got != ours {
			t.Errorf("the lease is held by %s, want this process again", got)
		}
		r.want("in the end", map[string]string{"a-0": "ready 20", "a-1": "ready 20"})
		if r.fleet.fleet.Node("a-1") != another {
			t.Error("another node of the fleet was added again, too")
		}
	})
}
