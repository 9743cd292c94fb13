package node

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// nodeRig is a node controller between an API and a provider, in a bubble.
type nodeRig struct {
	t    *testing.T
	api  *fakeAPI
	node *corev1.Node

	mu     sync.Mutex
	ping   func(context.Context) error
	pings  int
	notify func(*corev1.Node)

	nc   *NodeController
	stop func() error
}

func (r *nodeRig) Ping(ctx context.Context) error {
	r.mu.Lock()
	r.pings++
	ping := r.ping
	r.mu.Unlock()
	if ping == nil {
		return nil
	}
	return ping(ctx)
}

func (r *nodeRig) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) { r.notify = notify }

// pinged has pings answered so from now on.
func (r *nodeRig) pinged(ping func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ping = ping
}

func (r *nodeRig) countPings() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pings
}

func nodeBubble(t *testing.T, test func(t *testing.T, r *nodeRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &nodeRig{t: t, api: newFakeAPI(t), node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{"type": "virtual-kubelet"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "virtual", Effect: corev1.TaintEffectNoSchedule}}},
			Status: corev1.NodeStatus{
				Capacity:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
				NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux"},
			},
		}}
		t.Cleanup(func() {
			if r.stop != nil {
				r.end()
			}
		})
		test(t, r)
	})
}

func (r *nodeRig) withLease() NodeControllerOpt {
	return WithNodeEnableLeaseV1(r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease), 0)
}

func (r *nodeRig) launch(opts ...NodeControllerOpt) {
	r.t.Helper()
	nc, err := NewNodeController(r, r.node, r.api.CoreV1().Nodes(), opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.nc = nc
	ctx, cancel := context.WithCancel(r.t.Context())
	result := make(chan error, 1)
	go func() { result <- nc.Run(ctx) }()
	r.stop = func() error { cancel(); return <-result }
	synctest.Wait()
}

func (r *nodeRig) start(opts ...NodeControllerOpt) {
	r.t.Helper()
	r.launch(opts...)
	select {
	case <-r.nc.Ready():
	default:
		r.t.Fatal("the controller is not ready")
	}
}

func (r *nodeRig) end() {
	r.t.Helper()
	err := r.stop()
	r.stop = nil
	if err != nil {
		r.t.Errorf("the controller ended with %v", err)
	}
}

// ready returns the status, reason and message of the Ready condition.
func (r *nodeRig) ready() string {
	r.t.Helper()
	node := r.api.node("vk")
	if node == nil {
		return "no node"
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return string(c.Status) + " " + c.Reason + " " + c.Message
		}
	}
	return "no condition"
}

func (r *nodeRig) wantReady(prefix string) {
	r.t.Helper()
	if got := r.ready(); !strings.HasPrefix(got, prefix) {
		r.t.Errorf("Ready is %q, want %q", got, prefix)
	}
}

func (r *nodeRig) lease() *coordinationv1.Lease {
	r.t.Helper()
	obj, err := r.api.tracker.Get(leasesResource, corev1.NamespaceNodeLease, "vk")
	if err != nil {
		r.t.Fatal(err)
	}
	return obj.(*coordinationv1.Lease)
}

func TestRegisters(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.wantReady("True KubeletReady")
		node := r.api.node("vk")
		want(t, "labels", node.Labels, r.node.Labels)
		want(t, "taints", node.Spec.Taints, r.node.Spec.Taints)
		want(t, "capacity", node.Status.Capacity, r.node.Status.Capacity)
		want(t, "addresses", node.Status.Addresses, r.node.Status.Addresses)
		want(t, "info", node.Status.NodeInfo, r.node.Status.NodeInfo)
		writes := r.api.written()
		want(t, "first write", writes[0], "create nodes")
		for _, w := range writes[1:] {
			if strings.Contains(w, "nodes") {
				t.Errorf("one more write: %s", w)
			}
		}
	})
}

// What the provider says within NotifyNodeStatus is part of the registration.
func TestRegistersWhatWasNotifiedAtOnce(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		said := &corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("7")}}}
		nc, err := NewNodeController(saysAtOnce{r, said}, r.node, r.api.CoreV1().Nodes(), r.withLease())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- nc.Run(ctx) }()
		synctest.Wait()
		node := r.api.node("vk")
		want(t, "pods", node.Status.Capacity.Pods().String(), "7")
		want(t, "CPU", node.Status.Capacity.Cpu().String(), "4")
		want(t, "first writes", r.api.written()[0], "create nodes")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type saysAtOnce struct {
	*nodeRig
	node *corev1.Node
}

func (s saysAtOnce) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) { notify(s.node) }

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
		node := r.api.node("vk")
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

// The heartbeat is the lease, renewed every ten seconds for forty; the status is
// written every five minutes.
func TestHeartbeatByLease(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		lease := r.lease()
		want(t, "duration", *lease.Spec.LeaseDurationSeconds, 40)
		want(t, "holder", *lease.Spec.HolderIdentity, "vk")
		want(t, "owner", lease.OwnerReferences[0].UID, r.api.node("vk").UID)
		last := lease.Spec.RenewTime.Time
		for range 20 {
			pass(11 * time.Second)
			renewed := r.lease().Spec.RenewTime.Time
			if gap := renewed.Sub(last); gap < 9*time.Second || gap > 22*time.Second {
				t.Errorf("renewed after %v, want every 10 s", gap)
			}
			last = renewed
		}
		r.api.written()
		pass(time.Hour)
		statuses, leases := 0, 0
		for _, w := range r.api.written() {
			switch w {
			case "patch nodes/status vk":
				statuses++
			case "update leases":
				leases++
			default:
				t.Errorf("write: %s", w)
			}
		}
		if statuses < 11 || statuses > 13 {
			t.Errorf("status written %d times in an hour, want every five minutes", statuses)
		}
		if leases < 340 || leases > 365 {
			t.Errorf("lease renewed %d times in an hour, want every ten seconds", leases)
		}
	})
}

// Without a lease the status is the heartbeat, every ping interval.
func TestHeartbeatByStatus(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(WithNodePingInterval(20*time.Second), WithNodeStatusUpdateInterval(time.Hour))
		r.api.written()
		beat := func() time.Time { return r.api.node("vk").Status.Conditions[0].LastHeartbeatTime.Time }
		first := beat()
		pass(10*time.Minute + time.Second)
		want(t, "writes", len(r.api.written()), 30)
		if !beat().After(first) {
			t.Error("the heartbeat stands still")
		}
		want(t, "transition", r.api.node("vk").Status.Conditions[0].LastTransitionTime.Time.Equal(first), true)
	})
}

// The node is NotReady, with the reason, while the provider is not well.
func TestPing(t *testing.T) {
	for name, tc := range map[string]struct {
		ping func(context.Context) error
		want string
	}{
		"error": {func(context.Context) error { return errors.New("backend away") }, "False ProviderNotReady backend away"},
		"panic": {func(context.Context) error { panic("boom") }, "False ProviderNotReady the provider panicked in Ping: boom"},
		"slow":  {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "False ProviderNotReady "},
		"hangs": {func(context.Context) error { time.Sleep(5 * time.Minute); return nil }, "False ProviderNotReady the provider did not answer a ping within 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				r.start(r.withLease(), WithNodePingTimeout(3*time.Second))
				r.wantReady("True")
				r.pinged(tc.ping)
				pass(14 * time.Second)
				r.wantReady(tc.want)
				before := r.lease().Spec.RenewTime.Time
				pass(time.Minute)
				if !r.lease().Spec.RenewTime.After(before) {
					t.Error("the lease stands still: it says that the process lives, not that the provider is well")
				}
				r.wantReady(tc.want)
				r.pinged(nil)
				pass(5 * time.Minute)
				r.wantReady("True KubeletReady")
			})
		})
	}
}

// Pings that hang do not pile up.
func TestHangingPingsDoNotPileUp(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.pinged(func(context.Context) error { time.Sleep(time.Hour); return nil })
		before := r.countPings()
		pass(50 * time.Minute)
		want(t, "pings", r.countPings()-before, 1)
		r.end()
		pass(time.Hour) // until it is answered
	})
}

// A provider that is not well at the start gets a node that is not ready.
func TestUnhealthyAtTheStart(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.pinged(func(context.Context) error { return errors.New("backend away") })
		r.start(r.withLease())
		r.wantReady("False ProviderNotReady backend away")
	})
}

// A change of health that could not be written is written soon.
func TestHealthWhileTheAPIIsAway(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.api.fail("patch nodes/status", apierrors.NewServiceUnavailable("away"))
		r.pinged(func(context.Context) error { return errors.New("backend away") })
		pass(15 * time.Second)
		r.api.fail("patch nodes/status", nil)
		pass(10 * time.Second)
		r.wantReady("False ProviderNotReady")
	})
}

// What the control plane made of the node while the API server was away is
// repaired when the lease shows that it is back, though the watch (here: none)
// takes longer.
func TestReturnOfTheAPI(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		forbidden := apierrors.NewForbidden(nodesResource.GroupResource(), "", errors.New("no"))
		r.api.fail("list nodes", forbidden)
		r.api.fail("watch nodes", forbidden)
		r.start(r.withLease())
		pass(15 * time.Second)
		away := apierrors.NewServiceUnavailable("away")
		r.api.fail("update leases", away)
		r.api.fail("get leases", away)
		pass(time.Minute)
		r.api.changeNode("vk", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		})
		r.api.fail("update leases", nil)
		r.api.fail("get leases", nil)
		pass(20 * time.Second)
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
					forbidden := apierrors.NewForbidden(nodesResource.GroupResource(), "", errors.New("no"))
					r.api.fail("list nodes", forbidden)
					r.api.fail("watch nodes", forbidden)
					wait = 5*time.Minute + time.Second
				}
				r.start(r.withLease())
				pass(time.Second)
				for range 3 {
					was := r.api.node("vk")
					if err := r.api.tracker.Delete(nodesResource, "", "vk"); err != nil {
						t.Fatal(err)
					}
					pass(wait)
					r.wantReady("True")
					is := r.api.node("vk")
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

// A custom error handler hears of NotFound; nil means one retry, and the node is
// there again; else nothing is done until the next interval.
func TestStatusUpdateErrorHandler(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		var mu sync.Mutex
		var heard []error
		answer := func(context.Context) error { return errors.New("not now") }
		handler := func(ctx context.Context, err error) error {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, err)
			return answer(ctx)
		}
		hears := func(next func(context.Context) error) []error {
			mu.Lock()
			defer mu.Unlock()
			was := heard
			heard, answer = nil, next
			return was
		}
		r.start(r.withLease(), WithNodeStatusUpdateErrorHandler(handler))
		pass(time.Second)
		if err := r.api.tracker.Delete(nodesResource, "", "vk"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		want(t, "ready", r.ready(), "no node")
		was := hears(func(ctx context.Context) error {
			_, err := r.api.CoreV1().Nodes().Create(ctx, r.node, metav1.CreateOptions{})
			return err
		})
		if len(was) != 1 || !apierrors.IsNotFound(was[0]) {
			t.Errorf("heard %v, want one NotFound", was)
		}
		pass(time.Minute)
		r.wantReady("True")
		was = hears(func(context.Context) error { return nil })
		want(t, "heard", len(was), 1)

		r.api.fail("patch nodes/status", errors.New("broken"))
		r.api.written()
		r.notify(&corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}}})
		synctest.Wait()
		want(t, "heard", len(hears(nil)), 1)
		wantList(t, "tries", r.api.written(), "patch nodes/status vk", "patch nodes/status vk")
		r.api.fail("patch nodes/status", nil)
	})
}

// A partial notification wipes nothing.
func TestPartialNotification(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.api.changeNode("vk", func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, "foreign", "1") })
		for name, said := range map[string]*corev1.Node{
			"nothing":   {},
			"nil":       nil,
			"condition": {Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}}}},
			"label":     {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"new": "1"}}},
			"capacity":  {Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}},
			"info":      {Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: "arm64"}}},
			"name only": {ObjectMeta: metav1.ObjectMeta{Name: "vk"}},
		} {
			r.notify(said)
			pass(time.Minute)
			node := r.api.node("vk")
			if node.Labels["type"] != "virtual-kubelet" || node.Labels["foreign"] != "1" || node.Status.Capacity.Cpu().String() != "4" ||
				len(node.Spec.Taints) != 1 || len(node.Status.Addresses) != 1 || node.Status.NodeInfo.KubeletVersion != "v1.36.3" {
				t.Errorf("%s: left %+v", name, node)
			}
			r.wantReady("True")
		}
		node := r.api.node("vk")
		want(t, "what was said", []string{node.Labels["new"], node.Status.Capacity.Memory().String(), node.Status.NodeInfo.Architecture}, []string{"1", "1Gi", "arm64"})
	})
}

// A complete notification takes back what it no longer holds, also after a
// restart, and nothing of others.
func TestProviderTakesBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		nodeBubble(t, func(t *testing.T, r *nodeRig) {
			r.node.Labels["temporary"] = "1"
			r.node.Annotations = map[string]string{"temporary": "1"}
			r.node.Status.Capacity["example.com/gpu"] = resource.MustParse("1")
			r.start(r.withLease())
			r.api.changeNode("vk", func(n *corev1.Node) {
				metav1.SetMetaDataLabel(&n.ObjectMeta, "foreign", "1")
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "foreign", Effect: corev1.TaintEffectNoSchedule})
			})
			pass(time.Second)
			if restart {
				r.end()
			}
			delete(r.node.Labels, "temporary")
			r.node.Annotations = map[string]string{}
			delete(r.node.Status.Capacity, "example.com/gpu")
			r.node.Spec.Taints = []corev1.Taint{}
			if restart {
				r.start(r.withLease())
			} else {
				r.notify(r.node)
			}
			pass(time.Second)
			node := r.api.node("vk")
			want(t, "labels", node.Labels, map[string]string{"type": "virtual-kubelet", "foreign": "1"})
			want(t, "annotation", node.Annotations["temporary"], "")
			want(t, "taints", len(node.Spec.Taints), 1)
			want(t, "foreign taint", node.Spec.Taints[0].Key, "foreign")
			want(t, "capacities", len(node.Status.Capacity), 1)
		})
	}
}

// What a provider does with its node after it has notified is its own business.
func TestProviderChangesTheNodeItNotified(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		said := r.node.DeepCopy()
		said.Labels["new"] = "1"
		r.notify(said)
		said.Labels["new"] = "spoilt"
		said.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("99")
		r.node.Labels["type"] = "spoilt"
		pass(10 * time.Minute)
		node := r.api.node("vk")
		want(t, "labels", node.Labels, map[string]string{"type": "virtual-kubelet", "new": "1"})
		want(t, "CPU", node.Status.Capacity.Cpu().String(), "4")
	})
}

// Notifications from many goroutines at once add up; a complete one among
// partial ones stays complete.
func TestManyNodeNotifications(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.node.Labels["temporary"] = "1"
		r.start(r.withLease())
		var group sync.WaitGroup
		for i := range 26 {
			group.Go(func() {
				r.notify(&corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceName("example.com/" + string(rune('a'+i))): resource.MustParse("1")}}})
			})
		}
		group.Wait()
		r.notify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "1"}}})
		r.notify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{"type": "virtual-kubelet"}}})
		synctest.Wait()
		node := r.api.node("vk")
		want(t, "capacities", len(node.Status.Capacity), 27)
		want(t, "labels", node.Labels, map[string]string{"type": "virtual-kubelet"})
		want(t, "annotation", node.Annotations["a"], "1")
	})
}

// Two addresses of one type survive, though the API merges addresses by type.
func TestAddresses(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		both := []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::2"},
			{Type: corev1.NodeHostName, Address: "vk"},
		}
		r.notify(&corev1.Node{Status: corev1.NodeStatus{Addresses: both}})
		synctest.Wait()
		want(t, "addresses", r.api.node("vk").Status.Addresses, both)
		r.api.changeNode("vk", func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, "a", "b") })
		pass(10 * time.Minute)
		want(t, "addresses", r.api.node("vk").Status.Addresses, both)
	})
}

// What others overwrite is repaired, but not as fast as they can write.
func TestNodeDrift(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		pass(time.Second)
		r.api.written()
		for range 100 {
			r.api.changeNode("vk", func(n *corev1.Node) {
				n.Labels["type"] = "drift" + time.Now().String()
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}, {Type: "Foreign", Status: corev1.ConditionTrue}}
			})
			pass(100 * time.Millisecond)
		}
		pass(2 * time.Second)
		r.wantReady("True")
		want(t, "label", r.api.node("vk").Labels["type"], "virtual-kubelet")
		want(t, "conditions", len(r.api.node("vk").Status.Conditions), 2)
		patches := 0
		for _, w := range r.api.written() {
			if strings.HasPrefix(w, "patch nodes") {
				patches++
			}
		}
		if patches < 2 || patches > 26 {
			t.Errorf("%d patches in ten seconds of drift", patches)
		}
	})
}

// A conflict over the taints is resolved with the newest form of the node.
func TestConflict(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		forbidden := apierrors.NewForbidden(nodesResource.GroupResource(), "", errors.New("no"))
		r.api.fail("list nodes", forbidden) // so that only a conflict tells of the change
		r.start(r.withLease())
		r.api.changeNode("vk", func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "foreign", Effect: corev1.TaintEffectNoSchedule})
		})
		r.notify(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "new", Effect: corev1.TaintEffectNoSchedule}}}})
		synctest.Wait()
		var keys []string
		for _, taint := range r.api.node("vk").Spec.Taints {
			keys = append(keys, taint.Key)
		}
		wantList(t, "taints", keys, "foreign", "new")
	})
}

// Where labels or taints may not be changed the status is written all the same.
func TestForbiddenLabels(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.api.fail("patch nodes", apierrors.NewForbidden(nodesResource.GroupResource(), "vk", errors.New("is not allowed to modify taints")))
		r.api.changeNode("vk", func(n *corev1.Node) { n.Spec.Taints = nil })
		r.pinged(func(context.Context) error { return errors.New("backend away") })
		pass(11 * time.Second)
		r.wantReady("False ProviderNotReady")
		r.end()
		r.pinged(nil)
		r.start(r.withLease())
		r.wantReady("True")
	})
}

// At shutdown the node says that it is not ready.
func TestFarewell(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		pass(time.Minute)
		r.end()
		r.wantReady("False KubeletStopped")
		<-r.nc.Done()
		want(t, "Err", r.nc.Err(), nil)
		r.api.written()
		r.notify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"late": "1"}}})
		pass(time.Hour)
		wantList(t, "writes afterwards", r.api.written())
		if err := r.nc.Run(t.Context()); err == nil {
			t.Error("it ran twice")
		}
	})
}

// An API server that is away at the start is waited for.
func TestAPIAwayAtTheStart(t *testing.T) {
	for _, what := range []string{"get nodes", "create nodes"} {
		nodeBubble(t, func(t *testing.T, r *nodeRig) {
			r.api.fail(what, apierrors.NewServiceUnavailable("away"))
			r.launch(r.withLease())
			pass(10 * time.Minute)
			want(t, "ready", r.ready(), "no node")
			r.api.fail(what, nil)
			pass(12 * time.Second)
			<-r.nc.Ready()
			r.wantReady("True")
		})
	}
}

// A refusal is an error.
func TestRefusedRegistration(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.api.fail("create nodes", apierrors.NewForbidden(nodesResource.GroupResource(), "vk", errors.New("no")))
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
		r.api.fail("get nodes", apierrors.NewServiceUnavailable("away"))
		r.launch(r.withLease())
		err := r.stop()
		r.stop = nil
		if err == nil {
			t.Error("no error, and no node")
		}
	})
}

// cannotNotifyNode panics in NotifyNodeStatus.
type cannotNotifyNode struct{ *nodeRig }

func (cannotNotifyNode) NotifyNodeStatus(context.Context, func(*corev1.Node)) { panic("unimplemented") }

func TestPanicInNotifyNodeStatus(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		nc, err := NewNodeController(cannotNotifyNode{r}, r.node, r.api.CoreV1().Nodes())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- nc.Run(ctx) }()
		synctest.Wait()
		r.wantReady("True")
		cancel()
		<-done
	})
}

func TestNodeOptions(t *testing.T) {
	api := newFakeAPI(t)
	leases := api.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}}
	for name, opts := range map[string][]NodeControllerOpt{
		"ping interval":              {WithNodePingInterval(0)},
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

func TestNaiveNodeProviderV2(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		provider := NewNaiveNodeProvider()
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		if err := provider.UpdateStatus(short, r.node); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before a controller runs: %v", err)
		}
		nc, err := NewNodeController(provider, r.node, r.api.CoreV1().Nodes(), r.withLease())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- nc.Run(ctx) }()
		r.node.Labels["new"] = "1"
		if err := provider.UpdateStatus(t.Context(), r.node); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		want(t, "label", r.api.node("vk").Labels["new"], "1")
		if err := provider.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
	})
	if err := (&NaiveNodeProviderV2{}).UpdateStatus(t.Context(), nil); err == nil {
		t.Error("the zero value accepts what it can tell nobody")
	}
	if err := (NaiveNodeProvider{}).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// The remembrance of what the provider owns is not taken for the provider's.
func TestOwnedAnnotation(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		var before owned
		if err := json.Unmarshal([]byte(r.api.node("vk").Annotations[annotationOwned]), &before); err != nil {
			t.Fatal(err)
		}
		wantList(t, "labels", before.Labels, "type")
		wantList(t, "taints", before.Taints, "virtual:NoSchedule")
		r.notify(r.api.node("vk").DeepCopy()) // many providers give back what they read
		pass(time.Minute)
		var after owned
		if err := json.Unmarshal([]byte(r.api.node("vk").Annotations[annotationOwned]), &after); err != nil {
			t.Fatal(err)
		}
		want(t, "owned annotations", len(after.Annotations), 0)
	})
}
