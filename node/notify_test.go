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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// What the provider says within NotifyNodeStatus is part of the registration.
func TestRegistersWhatWasNotifiedAtOnce(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		reported := &corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("7")}}}
		nc, err := NewNodeController(saysAtOnce{r, reported}, r.node, r.api.CoreV1().Nodes(), r.withLease())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- nc.Run(ctx) }()
		synctest.Wait()
		node := r.api.Node("vk")
		want(t, "pods", node.Status.Capacity.Pods().String(), "7")
		want(t, "CPU", node.Status.Capacity.Cpu().String(), "4")
		want(t, "first writes", r.api.Written()[0], "create nodes")
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

// A partial notification wipes nothing.
func TestPartialNotification(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.api.ChangeNode("vk", func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, "foreign", "1") })
		for name, reported := range map[string]*corev1.Node{
			"nothing":   {},
			"nil":       nil,
			"condition": {Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}}}},
			"label":     {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"new": "1"}}},
			"capacity":  {Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}},
			"info":      {Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: "arm64"}}},
			"name only": {ObjectMeta: metav1.ObjectMeta{Name: "vk"}},
		} {
			r.notify(reported)
			pass(time.Minute)
			node := r.api.Node("vk")
			if node.Labels["type"] != "virtual-kubelet" || node.Labels["foreign"] != "1" || node.Status.Capacity.Cpu().String() != "4" ||
				len(node.Spec.Taints) != 1 || len(node.Status.Addresses) != 1 || node.Status.NodeInfo.KubeletVersion != "v1.36.3" {
				t.Errorf("%s: left %+v", name, node)
			}
			r.wantReady("True")
		}
		node := r.api.Node("vk")
		want(t, "what was reported", []string{node.Labels["new"], node.Status.Capacity.Memory().String(), node.Status.NodeInfo.Architecture}, []string{"1", "1Gi", "arm64"})
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
			r.api.ChangeNode("vk", func(n *corev1.Node) {
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
			node := r.api.Node("vk")
			want(t, "labels", node.Labels, map[string]string{"type": "virtual-kubelet", "foreign": "1"})
			want(t, "annotation", node.Annotations["temporary"], "")
			want(t, "taints", len(node.Spec.Taints), 1)
			want(t, "foreign taint", node.Spec.Taints[0].Key, "foreign")
			want(t, "capacities", len(node.Status.Capacity), 1)
		})
	}
}

// What a provider takes back is gone although writing the status fails at first, and the process
// ends before it is tried again.
func TestProviderTakesBackAfterAFailure(t *testing.T) {
	for _, restart := range []bool{false, true} {
		nodeBubble(t, func(t *testing.T, r *nodeRig) {
			r.node.Status.Capacity["example.com/gpu"] = resource.MustParse("1")
			r.start(r.withLease())
			pass(time.Second)
			r.api.Fail("patch nodes/status", apierrors.NewInternalError(errors.New("no")))
			delete(r.node.Status.Capacity, "example.com/gpu")
			r.notify(r.node)
			pass(time.Second)
			if restart {
				r.end()
			}
			r.api.Fail("patch nodes/status", nil)
			if restart {
				r.start(r.withLease())
			}
			pass(15 * time.Second)
			want(t, "capacities", len(r.api.Node("vk").Status.Capacity), 1)
			pass(2 * time.Minute)
			want(t, "what is its own", strings.Contains(r.api.Node("vk").Annotations[annotationOwned], "gpu"), false)
		})
	}
}

// A provider that says nothing of what can be allocated offers all that it has, also when that changes; what
// others have set of it stays.
func TestAllocatableFollowsCapacity(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.node.Status.Allocatable = nil
		r.node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("10"), "example.com/gpu": resource.MustParse("1")}
		r.start(r.withLease())
		pass(time.Second)
		r.api.ChangeNode("vk", func(n *corev1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("5") })
		r.node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("20"), "memory": resource.MustParse("1Gi")}
		r.notify(r.node)
		pass(15 * time.Second)
		got := map[corev1.ResourceName]string{}
		for name, amount := range r.api.Node("vk").Status.Allocatable {
			got[name] = amount.String()
		}
		want(t, "allocatable", got, map[corev1.ResourceName]string{"cpu": "8", "pods": "5", "memory": "1Gi"})
	})
}

// So it does where the provider, before a restart, has reported what can be allocated, or some of it. What others set
// after that stays.
func TestAllocatableThatIsNoLongerReportedFollowsCapacity(t *testing.T) {
	for name, reported := range map[string]corev1.ResourceList{
		"all":                    {"cpu": resource.MustParse("3"), "pods": resource.MustParse("10")},
		"some":                   {"cpu": resource.MustParse("3")},
		"some, as the capacity":  {"cpu": resource.MustParse("4")},
		"all, and as it will be": {"cpu": resource.MustParse("4"), "pods": resource.MustParse("10")},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				r.node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("10")}
				r.node.Status.Allocatable = reported
				r.start(r.withLease())
				pass(time.Second)
				r.end()
				r.node.Status.Allocatable = nil
				r.start(r.withLease())
				pass(15 * time.Second)
				got := r.api.Node("vk").Status.Allocatable
				want(t, "cpu", got.Cpu().String(), "4")
				want(t, "pods", got.Pods().String(), "10")

				r.api.ChangeNode("vk", func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("2") })
				pass(5 * time.Minute)
				want(t, "cpu that another has set", r.api.Node("vk").Status.Allocatable.Cpu().String(), "2")
			})
		})
	}
}

// What a provider does with its node after it has notified is its own business.
func TestProviderChangesTheNodeItNotified(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		reported := r.node.DeepCopy()
		reported.Labels["new"] = "1"
		r.notify(reported)
		reported.Labels["new"] = "spoilt"
		reported.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("99")
		r.node.Labels["type"] = "spoilt"
		pass(10 * time.Minute)
		node := r.api.Node("vk")
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
		node := r.api.Node("vk")
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
		want(t, "addresses", r.api.Node("vk").Status.Addresses, both)
		r.api.ChangeNode("vk", func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, "a", "b") })
		pass(10 * time.Minute)
		want(t, "addresses", r.api.Node("vk").Status.Addresses, both)
	})
}

// What others overwrite is repaired, but not as fast as they can write.
func TestNodeDrift(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		pass(time.Second)
		r.api.Written()
		for range 100 {
			r.api.ChangeNode("vk", func(n *corev1.Node) {
				n.Labels["type"] = "drift" + time.Now().String()
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}, {Type: "Foreign", Status: corev1.ConditionTrue}}
			})
			pass(100 * time.Millisecond)
		}
		pass(2 * time.Second)
		r.wantReady("True")
		want(t, "label", r.api.Node("vk").Labels["type"], "virtual-kubelet")
		want(t, "conditions", len(r.api.Node("vk").Status.Conditions), 2)
		patches := 0
		for _, w := range r.api.Written() {
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
		forbidden := apierrors.NewForbidden(fakeapi.Nodes.GroupResource(), "", errors.New("no"))
		r.api.Fail("list nodes", forbidden) // so that only a conflict shows the change
		r.start(r.withLease())
		r.api.ChangeNode("vk", func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "foreign", Effect: corev1.TaintEffectNoSchedule})
		})
		r.notify(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "new", Effect: corev1.TaintEffectNoSchedule}}}})
		synctest.Wait()
		var keys []string
		for _, taint := range r.api.Node("vk").Spec.Taints {
			keys = append(keys, taint.Key)
		}
		wantList(t, "taints", keys, "foreign", "new")
	})
}

// Where labels or taints may not be changed the status is written all the same.
func TestForbiddenLabels(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease())
		r.api.Fail("patch nodes", apierrors.NewForbidden(fakeapi.Nodes.GroupResource(), "vk", errors.New("is not allowed to modify taints")))
		r.api.ChangeNode("vk", func(n *corev1.Node) { n.Spec.Taints = nil })
		r.pinged(func(context.Context) error { return errors.New("backend away") })
		pass(11 * time.Second)
		r.wantReady("False ProviderNotReady")
		r.end()
		r.pinged(nil)
		r.start(r.withLease())
		r.wantReady("True")
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
		want(t, "label", r.api.Node("vk").Labels["new"], "1")
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
		if err := json.Unmarshal([]byte(r.api.Node("vk").Annotations[annotationOwned]), &before); err != nil {
			t.Fatal(err)
		}
		wantList(t, "labels", before.Labels, "type")
		wantList(t, "taints", before.Taints, "virtual:NoSchedule")
		read := r.api.Node("vk")
		r.notify(read) // many providers give back what they read
		want(t, "what they gave", read, r.api.Node("vk"))
		pass(time.Minute)
		var after owned
		if err := json.Unmarshal([]byte(r.api.Node("vk").Annotations[annotationOwned]), &after); err != nil {
			t.Fatal(err)
		}
		want(t, "owned annotations", len(after.Annotations), 0)
	})
}
