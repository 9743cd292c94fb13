package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

func TestRegisters(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.wantReady("True KubeletReady")
		node := r.api.Node("vk")
		want(t, "labels", node.Labels, r.node.Labels)
		want(t, "taints", node.Spec.Taints, r.node.Spec.Taints)
		want(t, "capacity", node.Status.Capacity, r.node.Status.Capacity)
		want(t, "addresses", node.Status.Addresses, r.node.Status.Addresses)
		want(t, "info", node.Status.NodeInfo, r.node.Status.NodeInfo)
		writes := r.api.Written()
		want(t, "first write", writes[0], "create nodes")
		for _, w := range writes[1:] {
			if strings.Contains(w, "nodes") {
				t.Errorf("one more write: %s", w)
			}
		}
	})
}

// What others wrote on the node survives: labels, annotations, taints,
// conditions, and fields that nobody of us knows.
func TestAdoptsAnExistingNode(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		foreign := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "vk", Labels: map[string]string{"zone": "a", "type": "other"}, Annotations: map[string]string{"note": "keep"},
			},
			Spec: corev1.NodeSpec{
				PodCIDR: "10.1.0.0/24", ProviderID: "cloud://7",
				Taints: []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}},
			},
			Status: corev1.NodeStatus{
				Conditions:      []corev1.NodeCondition{{Type: "NetworkUnavailable", Status: corev1.ConditionFalse, Reason: "RouteCreated"}},
				Capacity:        corev1.ResourceList{"example.com/gpu": resource.MustParse("2")},
				VolumesAttached: []corev1.AttachedVolume{{Name: "v"}},
			},
		}
		if _, err := r.api.CoreV1().Nodes().Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.node.Spec.ProviderID = "virtual://vk"
		r.start(r.withLease())
		pass(time.Minute)
		node := r.api.Node("vk")
		want(t, "labels", node.Labels, map[string]string{"zone": "a", "type": "virtual-kubelet"})
		want(t, "annotation", node.Annotations["note"], "keep")
		want(t, "taints", len(node.Spec.Taints), 2)
		want(t, "CIDR, provider ID", node.Spec.PodCIDR+" "+node.Spec.ProviderID, "10.1.0.0/24 cloud://7")
		want(t, "conditions", len(node.Status.Conditions), 2)
		want(t, "foreign condition", node.Status.Conditions[0].Reason, "RouteCreated")
		want(t, "capacities", len(node.Status.Capacity), 2)
		want(t, "volumes", len(node.Status.VolumesAttached), 1)
		r.wantReady("True")
	})
}

// A node that was deleted is registered again, as it was.
func TestDeletedNodeIsRegisteredAgain(t *testing.T) {
	for name, watches := range map[string]bool{"watching": true, "without the right to watch": false} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				wait := 2 * time.Second
				if !watches {
					forbidden := apierrors.NewForbidden(fakeapi.Nodes.GroupResource(), "", errors.New("no"))
					r.api.Fail("list nodes", forbidden)
					r.api.Fail("watch nodes", forbidden)
					wait = DefaultStatusUpdateInterval + time.Second
				}
				r.start(r.withLease())
				pass(time.Second)
				for range 3 {
					was := r.api.Node("vk")
					if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
						t.Fatal(err)
					}
					pass(wait)
					r.wantReady("True")
					is := r.api.Node("vk")
					want(t, "another node", is.UID != was.UID, true)
					want(t, "labels", is.Labels, was.Labels)
					want(t, "capacity", is.Status.Capacity, was.Status.Capacity)
					pass(time.Minute)
					want(t, "the lease's owner", r.lease().OwnerReferences[0].UID, is.UID)
				}
			})
		})
	}
}

// An API server that starts refuses everything for some seconds: that is not
// taken for its last word.
func TestWatchesAgainOnceItMay(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		forbidden := apierrors.NewForbidden(fakeapi.Nodes.GroupResource(), "", errors.New("no roles yet"))
		r.api.Fail("list nodes", forbidden)
		r.api.Fail("watch nodes", forbidden)
		r.start(r.withLease())
		pass(time.Minute)
		r.api.Fail("list nodes", nil)
		r.api.Fail("watch nodes", nil)
		pass(11 * time.Second)
		if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		r.wantReady("True")
	})
}

// A custom error handler hears of NotFound; nil means one retry, and the node is
// there again; else nothing is done until the next interval.
func TestStatusUpdateErrorHandler(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		var mu sync.Mutex
		var handled []error
		answer := func(context.Context) error { return errors.New("not now") }
		handler := func(ctx context.Context, err error) error {
			mu.Lock()
			defer mu.Unlock()
			handled = append(handled, err)
			return answer(ctx)
		}
		hears := func(next func(context.Context) error) []error {
			mu.Lock()
			defer mu.Unlock()
			was := handled
			handled, answer = nil, next
			return was
		}
		r.start(r.withLease(), WithNodeStatusUpdateErrorHandler(handler))
		pass(time.Second)
		if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		want(t, "ready", r.ready(), "no node")
		was := hears(func(ctx context.Context) error {
			_, err := r.api.CoreV1().Nodes().Create(ctx, r.node, metav1.CreateOptions{})
			return err
		})
		if len(was) == 0 || !apierrors.IsNotFound(was[0]) { // twice if the first look, whose time is random, falls here
			t.Errorf("handled %v, want NotFound", was)
		}
		pass(time.Minute)
		r.wantReady("True")
		was = hears(func(context.Context) error { return nil })
		want(t, "handled", len(was), 1)

		// One that does nothing about it does not want it back, as where the node was removed for good.
		node := r.api.Node("vk")
		if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		want(t, "ready", r.ready(), "no node")
		node.ResourceVersion = ""
		if err := r.api.Tracker.Add(node); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		r.wantReady("True")
		hears(func(context.Context) error { return nil })

		r.api.Fail("patch nodes/status", errors.New("broken"))
		r.api.Written()
		r.notify(&corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}}})
		synctest.Wait()
		want(t, "handled", len(hears(nil)), 1)
		wantList(t, "tries", r.api.Written(), "patch nodes/status vk", "patch nodes/status vk")
		r.api.Fail("patch nodes/status", nil)
	})
}

// An API server that is away at the start is waited for.
func TestAPIAwayAtTheStart(t *testing.T) {
	for _, what := range []string{"get nodes", "create nodes"} {
		nodeBubble(t, func(t *testing.T, r *nodeRig) {
			r.api.Fail(what, apierrors.NewServiceUnavailable("away"))
			r.launch(r.withLease())
			pass(10 * time.Minute)
			want(t, "ready", r.ready(), "no node")
			r.api.Fail(what, nil)
			pass(12 * time.Second)
			<-r.nc.Ready()
			r.wantReady("True")
		})
	}
}

// A refusal is an error.
func TestRefusedRegistration(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.api.Fail("create nodes", apierrors.NewForbidden(fakeapi.Nodes.GroupResource(), "vk", errors.New("no")))
		r.launch(r.withLease())
		<-r.nc.Done()
		err := r.stop()
		r.stop = nil
		if !apierrors.IsForbidden(err) || r.nc.Err() == nil {
			t.Errorf("Run returned %v, want the refusal", err)
		}
	})
}

// Who is stopped before the node is registered says so.
func TestStoppedBeforeRegistration(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.api.Fail("get nodes", apierrors.NewServiceUnavailable("away"))
		r.launch(r.withLease())
		err := r.stop()
		r.stop = nil
		if err == nil {
			t.Error("no error, and no node")
		}
	})
}

func TestNodeOptions(t *testing.T) {
	api := fakeapi.New(t)
	leases := api.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}}
	for name, opts := range map[string][]NodeControllerOpt{
		"ping interval":              {WithNodePingInterval(-1)},
		"negative ping timeout":      {WithNodePingTimeout(-1)},
		"status interval":            {WithNodeStatusUpdateInterval(-time.Second)},
		"lease without a client":     {WithNodeEnableLeaseV1(nil, 40)},
		"lease duration":             {WithNodeEnableLeaseV1WithRenewInterval(leases, 0, time.Second)},
		"renewal after the end":      {WithNodeEnableLeaseV1WithRenewInterval(leases, 40, time.Minute)},
		"renewal without a interval": {WithNodeEnableLeaseV1WithRenewInterval(leases, 40, 0)},
	} {
		if _, err := NewNodeController(nil, node, api.CoreV1().Nodes(), opts...); !errdefs.IsInvalidInput(err) {
			t.Errorf("%s: got %v, want an error of class InvalidInput", name, err)
		}
	}
	_, err := NewNodeController(nil, node, api.CoreV1().Nodes(), WithNodeEnableLeaseV1(leases, 40), WithNodeEnableLeaseV1WithRenewInterval(leases, 40, 5*time.Second))
	if !errors.Is(err, ErrConflictingLeaseControllerConfiguration) {
		t.Errorf("two leases: got %v", err)
	}
	for name, nameless := range map[string]*corev1.Node{"nil": nil, "no name": {}} {
		if _, err := NewNodeController(nil, nameless, api.CoreV1().Nodes()); !errdefs.IsInvalidInput(err) {
			t.Errorf("node %s: got %v, want an error of class InvalidInput", name, err)
		}
	}
	if _, err := NewNodeController(nil, node, nil); !errdefs.IsInvalidInput(err) {
		t.Errorf("no client: got %v, want an error of class InvalidInput", err)
	}
	if _, err := NewNodeController(nil, node, api.CoreV1().Nodes(), nil, WithNodeStatusUpdateErrorHandler(nil)); err != nil {
		t.Errorf("nil options: %v", err)
	}
}
