package nodeutil_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	stdruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// fleetRig is a fleet in virtual time.
type fleetRig struct {
	t         *testing.T
	client    *fake.Clientset
	fleet     *nodeutil.Fleet
	providers map[string]*tiny
	stop      func() error
	cause     error // of the end
}

func fleetBubble(t *testing.T, test func(t *testing.T, r *fleetRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &fleetRig{t: t, client: fake.NewSimpleClientset(), providers: map[string]*tiny{}}
		fleet, err := nodeutil.NewFleet(nodeutil.FleetConfig{Client: r.client})
		if err != nil {
			t.Fatal(err)
		}
		r.fleet = fleet
		test(t, r)
		if r.stop != nil {
			if err := r.stop(); err != nil {
				t.Errorf("the fleet ended with %v", err)
			}
		}
	})
}

func (r *fleetRig) add(name string) *nodeutil.Node {
	r.t.Helper()
	r.providers[name] = &tiny{}
	n, err := r.fleet.Add(name, making(r.providers[name]))
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *fleetRig) start() {
	ctx, cancel := context.WithCancelCause(r.t.Context())
	result := make(chan error, 1)
	go func() { result <- r.fleet.Run(ctx) }()
	r.stop = sync.OnceValue(func() error { cancel(r.cause); return <-result })
}

func (r *fleetRig) create(name, node string) {
	r.t.Helper()
	if _, err := r.client.CoreV1().Pods("default").Create(r.t.Context(), pod(name, node), metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// runs are the names of the pods that a node's provider has.
func (r *fleetRig) runs(node string) (names []string) {
	pods, _ := r.providers[node].GetPods(r.t.Context())
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

func (r *fleetRig) ready(name string) corev1.ConditionStatus {
	r.t.Helper()
	for _, c := range getNode(r.t, r.client, name).Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func (r *fleetRig) count(verb, resource string) (count int) {
	for _, action := range r.client.Actions() {
		if action.Matches(verb, resource) {
			count++
		}
	}
	return count
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantNames(t *testing.T, what string, got []string, wanted ...string) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("%s: got %q, want %q", what, got, wanted)
	}
}

func TestFleetRunsThePodsOfEachNodeOverOneWatch(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		r.create("early", "vk-1")
		for i := range 20 {
			r.add(fmt.Sprint("vk-", i))
		}
		r.start()
		pass(time.Minute)
		for i := range 20 {
			if err := r.fleet.Node(fmt.Sprint("vk-", i)).WaitReady(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
		}
		r.create("late", "vk-2")
		r.create("elsewhere", "other")
		pass(time.Second)
		wantNames(t, "pods of vk-1", r.runs("vk-1"), "early")
		wantNames(t, "pods of vk-2", r.runs("vk-2"), "late")
		wantNames(t, "pods of vk-3", r.runs("vk-3"))

		r.create("before-its-node", "added")
		r.add("added")
		pass(time.Minute)
		r.create("after-its-node", "added")
		pass(time.Second)
		wantNames(t, "pods of a node added at run time", r.runs("added"), "after-its-node", "before-its-node")
		for _, resource := range []string{"pods", "nodes", "services"} {
			if got := r.count("watch", resource); got != 1 {
				t.Errorf("%d watches of %s for 21 nodes, want 1", got, resource)
			}
		}
		if got := r.count("list", "pods"); got != 2 {
			t.Errorf("%d lists of pods, want one for all and one for the node that was added", got)
		}
		if _, err := r.fleet.Add("added", making(&tiny{})); !errdefs.IsConflict(err) {
			t.Errorf("a name that is taken: got %v, want an error of class Conflict", err)
		}
	})
}

// The cost of a node at rest: that it has few goroutines is what lets a process
// have many.
func TestNodesOfAFleetShareWhatTheyCan(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		count := func(nodes int) int {
			for i := range nodes {
				r.add(fmt.Sprintf("vk-%d-%d", len(r.providers), i))
			}
			pass(10 * time.Minute)
			return goroutinesOfBubble()
		}
		r.start()
		before := count(10)
		if more := count(100) - before; more > 100 {
			t.Errorf("100 more nodes have %d more goroutines, want one each", more)
		}
	})
}

// goroutinesOfBubble is how many goroutines the test has. Others are the runtime's, which begins some of
// its own, or what other tests have left.
func goroutinesOfBubble() int {
	stacks := make([]byte, 16<<20)
	return bytes.Count(stacks[:stdruntime.Stack(stacks, true)], []byte(", synctest bubble "))
}

func TestNodeThatFailsDoesNotTakeDownTheOthers(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		var mu sync.Mutex
		refuse := true
		fakeapi.React(&r.client.Fake, "create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			created := action.(clienttesting.CreateAction).GetObject().(*corev1.Node)
			if refuse && created.Name == "bad" {
				return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "bad", errors.New("no"))
			}
			return false, nil, nil
		})
		r.add("good")
		bad := r.add("bad")
		r.start()
		pass(5 * time.Minute)
		if got := r.ready("good"); got != corev1.ConditionTrue {
			t.Errorf("the other node is Ready=%q", got)
		}
		select {
		case <-bad.Ready():
			t.Fatal("a node that was refused says that it is ready")
		default:
		}
		mu.Lock()
		refuse = false
		mu.Unlock()
		pass(2 * time.Minute)
		if got := r.ready("bad"); got != corev1.ConditionTrue {
			t.Errorf("once it is let in, the node is Ready=%q", got)
		}
		if _, err := r.fleet.Add("unmade", func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return nil, nil, errors.New("no backend")
		}); err == nil || r.fleet.Node("unmade") != nil {
			t.Errorf("a provider that cannot be made: got %v and node %v", err, r.fleet.Node("unmade"))
		}
		r.add("unmade") // it can be tried again
	})
}

func TestRemoveLeavesThePodsAndSaysNotReady(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		first := r.add("vk-0")
		r.add("vk-1")
		r.create("web", "vk-0")
		r.start()
		pass(time.Minute)
		if err := r.fleet.Remove(t.Context(), "vk-0"); err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		if err := first.Err(); err != nil {
			t.Errorf("the node ended with %v", err)
		}
		if got := r.ready("vk-0"); got != corev1.ConditionFalse {
			t.Errorf("a node that was removed is Ready=%q", got)
		}
		wantNames(t, "pods in the provider", r.runs("vk-0"), "web")
		r.create("later", "vk-0")
		pass(2 * time.Minute)
		wantNames(t, "pods in the provider later", r.runs("vk-0"), "web")
		if err := r.fleet.Remove(t.Context(), "vk-0"); !errdefs.IsNotFound(err) {
			t.Errorf("removed twice: got %v, want an error of class NotFound", err)
		}

		if err := r.fleet.Remove(t.Context(), "vk-1", nodeutil.DeletingNode()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if _, err := r.client.CoreV1().Nodes().Get(t.Context(), "vk-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a Node that was to be deleted: %v", err)
		}

		back, err := r.fleet.Add("vk-0", making(r.providers["vk-0"]))
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := back.WaitReady(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		wantNames(t, "pods of the node that is back", r.runs("vk-0"), "later", "web")
	})
}

// The first node may come after the start: until then nobody needed what nodes share.
func TestFleetBeginsWithoutNodes(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		r.start()
		pass(time.Minute)
		r.add("vk-0")
		r.create("web", "vk-0")
		pass(time.Minute)
		if got := r.ready("vk-0"); got != corev1.ConditionTrue {
			t.Errorf("the node is Ready=%q", got)
		}
		wantNames(t, "pods in the provider", r.runs("vk-0"), "web")
	})
}

// A node that another process goes on with is left as it is.
func TestNodeThatIsHandedOverStaysReady(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		r.add("vk-0")
		r.create("web", "vk-0")
		r.start()
		pass(time.Minute)
		before := r.client.Actions()
		if err := r.fleet.Remove(t.Context(), "vk-0", nodeutil.KeepingReady()); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		if got := r.ready("vk-0"); got != corev1.ConditionTrue {
			t.Errorf("a node whose shard was handed over is Ready=%q", got)
		}
		for _, action := range r.client.Actions()[len(before):] {
			if verb := action.GetVerb(); verb != "get" && verb != "watch" {
				t.Errorf("after the node has left: %s %s", verb, action.GetResource().Resource)
			}
		}
		wantNames(t, "pods in the provider", r.runs("vk-0"), "web")
	})
}

func TestNodesStayReadyWhenTheFleetEnds(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		n := r.add("vk-0")
		r.start()
		pass(time.Minute)
		if err := n.Run(t.Context()); err == nil {
			t.Error("a node of a fleet can be run by itself, too")
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if got := r.ready("vk-0"); got != corev1.ConditionTrue {
			t.Errorf("the node is Ready=%q, want that a restart is not noticed", got)
		}
	})
}

// A fleet whose nodes another process goes on with leaves them as they are, and ends all at once.
func TestFleetThatIsHandedOver(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		fleet, err := nodeutil.NewFleet(nodeutil.FleetConfig{Client: r.client, MaxRegistrations: 1})
		if err != nil {
			t.Fatal(err)
		}
		r.fleet, r.cause = fleet, node.ErrHandedOver
		var begun, ended atomic.Int64
		for _, name := range []string{"vk-0", "vk-1"} {
			p := &lingering{begun: &begun, ended: &ended}
			if _, err := fleet.Add(name, making(p), notReadyAtShutdown); err != nil {
				t.Fatal(err)
			}
			r.create("web-"+name, name)
		}
		r.start()
		pass(time.Minute)
		go func() { _ = r.stop() }()
		pass(time.Second)
		if begun.Load() != 2 || ended.Load() != 2 {
			t.Errorf("of %d calls %d were cancelled at once, want both", begun.Load(), ended.Load())
		}
		pass(time.Minute)
		for _, name := range []string{"vk-0", "vk-1"} {
			if got := r.ready(name); got != corev1.ConditionTrue {
				t.Errorf("%s is Ready=%q, want that it is left to the other process", name, got)
			}
		}
	})
}

func notReadyAtShutdown(cfg *nodeutil.NodeConfig) error {
	cfg.NotReadyAtShutdown = true
	return nil
}

// lingering begins pods until it is cancelled, and is long in returning then.
type lingering struct {
	tiny
	begun, ended *atomic.Int64
}

func (p *lingering) CreatePod(ctx context.Context, _ *corev1.Pod) error {
	p.begun.Add(1)
	<-ctx.Done()
	p.ended.Add(1)
	time.Sleep(5 * time.Second)
	return ctx.Err()
}

// Nodes that the API server refuses hold up no others, however few may register at
// the same time, nor the readiness of the process; where there are no others it is
// not ready.
func TestRefusedNodesHoldUpNoOthers(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		fleet, err := nodeutil.NewFleet(nodeutil.FleetConfig{Client: r.client, MaxRegistrations: 2})
		if err != nil {
			t.Fatal(err)
		}
		r.fleet = fleet
		fakeapi.React(&r.client.Fake, "create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			name := action.(clienttesting.CreateAction).GetObject().(*corev1.Node).Name
			return strings.HasPrefix(name, "bad"), nil, apierrors.NewForbidden(corev1.Resource("nodes"), name, errors.New("no"))
		})
		ready := func() (int, string) {
			answer := httptest.NewRecorder()
			r.fleet.ProcessHandler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz/nodes", nil))
			return answer.Code, answer.Body.String()
		}
		for i := range 5 {
			r.add(fmt.Sprint("bad-", i))
		}
		r.start()
		pass(10 * time.Second)
		if code, text := ready(); code != http.StatusInternalServerError {
			t.Errorf("with refused nodes only /readyz/nodes answers %d: %s", code, text)
		}
		for i := range 5 {
			r.add(fmt.Sprint("good-", i))
		}
		pass(10 * time.Second)
		for i := range 5 {
			if got := r.ready(fmt.Sprint("good-", i)); got != corev1.ConditionTrue {
				t.Errorf("a node that is not refused is Ready=%q", got)
			}
		}
		if code, text := ready(); code != http.StatusOK {
			t.Errorf("with others /readyz/nodes answers %d: %s", code, text)
		}
		if why := r.fleet.Node("bad-0").NodeController().NotReady(); !errors.Is(why, node.ErrNodeRefused) {
			t.Errorf("a refused node waits for %v", why)
		}
	})
}

// A process is not ready whose nodes have all ended, though they were registered.
func TestFleetWhoseNodesHaveEndedIsNotReady(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		leases := nodeutil.NodeLeaseV1Client(r.client)
		claim, err := node.NewClaim(node.ClaimConfig{Node: "vk-0", Nodes: r.client.CoreV1().Nodes(), Leases: leases, Identity: node.Identity{ID: "us"}})
		if err != nil {
			t.Fatal(err)
		}
		var taken atomic.Bool // the fake knows no versions
		fakeapi.React(&r.client.Fake, "update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return taken.Load(), nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "vk-0", errors.New("changed"))
		})
		n, err := r.fleet.Add("vk-0", making(&tiny{}), func(cfg *nodeutil.NodeConfig) error { cfg.Claim = claim; return nil })
		if err != nil {
			t.Fatal(err)
		}
		r.start()
		pass(time.Minute)
		ready := func() (int, string) {
			answer := httptest.NewRecorder()
			r.fleet.ProcessHandler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz/nodes", nil))
			return answer.Code, answer.Body.String()
		}
		if code, text := ready(); code != http.StatusOK {
			t.Errorf("with a node that runs /readyz/nodes answers %d: %s", code, text)
		}
		lease, err := leases.Get(t.Context(), "vk-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease = lease.DeepCopy()
		lease.Annotations["virtual-kubelet.io/holder"] = "other"
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		taken.Store(true)
		pass(time.Minute)
		if err := n.Err(); !errors.Is(err, node.ErrNodeTaken) {
			t.Fatalf("the node has ended with %v", err)
		}
		if code, text := ready(); code != http.StatusInternalServerError {
			t.Errorf("with no other node /readyz/nodes answers %d: %s", code, text)
		}
	})
}

// A process is ready whose nodes another one goes on with: they only wait to be removed.
func TestFleetIsReadyWithNodesThatWereHandedOver(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		n := r.add("vk-0")
		r.start()
		pass(10 * time.Second)
		r.fleet.HandOver(func(string) bool { return true })
		<-n.Done()
		answer := httptest.NewRecorder()
		r.fleet.ProcessHandler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz/nodes", nil))
		if answer.Code != http.StatusOK {
			t.Errorf("/readyz/nodes answers %d: %s", answer.Code, answer.Body)
		}
	})
}

// What is deleted is the Node that was registered, and no other of its name.
func TestNodesAreDeletedByTheirUIDs(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		var away atomic.Bool
		fakeapi.React(&r.client.Fake, "create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if away.Load() {
				return true, nil, apierrors.NewServiceUnavailable("away")
			}
			created := action.(clienttesting.CreateAction).GetObject().(*corev1.Node)
			created.UID = types.UID("uid-of-" + created.Name)
			return false, nil, nil
		})
		var deleted []string
		fakeapi.React(&r.client.Fake, "delete", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			options := action.(clienttesting.DeleteActionImpl).DeleteOptions
			deleted = append(deleted, string(*options.Preconditions.UID))
			return false, nil, nil
		})
		r.add("vk-0")
		r.start()
		pass(time.Second)
		if err := r.fleet.Remove(t.Context(), "vk-0", nodeutil.DeletingNode()); err != nil {
			t.Fatal(err)
		}
		wantNames(t, "deleted", deleted, "uid-of-vk-0")
		away.Store(true)
		r.add("vk-1") // which is never registered
		pass(time.Second)
		if err := r.fleet.Remove(t.Context(), "vk-1", nodeutil.DeletingNode()); err != nil {
			t.Fatal(err)
		}
		wantNames(t, "deleted", deleted, "uid-of-vk-0")
	})
}

// A Node that somebody deletes is noticed by the one watch, and comes back.
func TestNodeOfAFleetThatIsDeletedComesBack(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		r.add("vk-0")
		r.start()
		pass(10 * time.Second)
		if err := r.client.CoreV1().Nodes().Delete(t.Context(), "vk-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second) // before the next look at the status
		getNode(t, r.client, "vk-0")
	})
}

// A provider that goes on calculating with what its node can allocate changes no other node.
func TestProviderChangesWhatItsNodeCanAllocate(t *testing.T) {
	fleetBubble(t, func(t *testing.T, r *fleetRig) {
		allocatable := map[string]func() corev1.ResourceList{}
		for _, name := range []string{"a", "b"} {
			_, err := r.fleet.Add(name, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
				cfg.Node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
				allocatable[name] = cfg.NodeAllocatable
				return nodeutil.AsProvider(&tiny{}), nil, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		allocatable["a"]()[corev1.ResourceCPU] = resource.MustParse("1")
		for name, of := range allocatable {
			if list := of(); list.Cpu().String() != "4" {
				t.Errorf("node %s can allocate %s CPUs, want 4", name, list.Cpu())
			}
		}
	})
}
