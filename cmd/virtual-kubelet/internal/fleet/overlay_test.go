package fleet

import (
	"context"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// stubborn is a provider that reports again and again what it was made with.
type stubborn struct {
	node.NaiveNodeProvider
	made   *corev1.Node
	notify func(*corev1.Node)
}

func (s *stubborn) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) { s.notify = notify }

func taintNamed(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
}

func cpus(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
}

func TestProviderDoesNotUndoTheOverlay(t *testing.T) {
	spec := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{corev1.LabelArchStable: "arm64"}}}
	p := &overlaidProvider{overlay: nodepools.Overlay{Labels: map[string]string{"tier": "front", "old": "1"}, Taints: []corev1.Taint{taintNamed("old")}, Capacity: cpus("3")}}
	var provider stubborn
	_, of, err := p.wrap(func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		provider.made = cfg.Node
		cfg.Node.Labels["provider"] = "says"
		cfg.Node.Spec.Taints = []corev1.Taint{taintNamed("provider")}
		cfg.Node.Status.Capacity, cfg.Node.Status.Allocatable = cpus("1"), cpus("1")
		return nil, &provider, nil
	})(nodeutil.ProviderConfig{Node: spec})
	if err != nil {
		t.Fatal(err)
	}
	var reported *corev1.Node
	want := func(what string, node *corev1.Node, cpu string, labels map[string]string, taints ...corev1.Taint) {
		t.Helper()
		labels[corev1.LabelArchStable] = "arm64"
		if !maps.Equal(node.Labels, labels) {
			t.Errorf("%s: labels are %v, want %v", what, node.Labels, labels)
		}
		if len(node.Spec.Taints) != len(taints) {
			t.Fatalf("%s: taints are %v, want %v", what, node.Spec.Taints, taints)
		}
		for i := range taints {
			if node.Spec.Taints[i] != taints[i] {
				t.Errorf("%s: taints are %v, want %v", what, node.Spec.Taints, taints)
			}
		}
		if capacity, allocatable := node.Status.Capacity.Cpu().String(), node.Status.Allocatable.Cpu().String(); capacity != cpu || allocatable != cpu {
			t.Errorf("%s: it has %s CPUs and can allocate %s, want %s", what, capacity, allocatable, cpu)
		}
	}
	before := map[string]string{"tier": "front", "old": "1", "provider": "says"}
	want("registered", spec, "3", before, taintNamed("provider"), taintNamed("old"))

	of.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { reported = n })
	want("at first", reported, "3", before, taintNamed("provider"), taintNamed("old"))
	p.change(nodepools.Overlay{Labels: map[string]string{"tier": "back"}, Taints: []corev1.Taint{taintNamed("new")}})
	after := map[string]string{"tier": "back", "provider": "says"}
	want("after a change", reported, "1", after, taintNamed("provider"), taintNamed("new"))
	if reported.Name != "vk" {
		t.Errorf("what is gone stays: the node that was reported has the name %q, and so is not complete", reported.Name)
	}

	provider.notify(provider.made.DeepCopy())
	want("after the provider has reported it again", reported, "1", after, taintNamed("provider"), taintNamed("new"))
	provider.notify(&corev1.Node{Status: corev1.NodeStatus{Phase: "x"}})
	want("after it has reported something else", reported, "1", after, taintNamed("provider"), taintNamed("new"))
	if reported.Status.Phase != "x" {
		t.Errorf("what no pool sets was lost: %+v", reported.Status)
	}
	provider.notify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{corev1.LabelArchStable: "arm64"}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{}}})
	want("after it has removed its own", reported, "1", map[string]string{"tier": "back"}, taintNamed("new"))
}

// A change that comes before the node runs counts.
func TestPoolChangesBeforeTheNodeRuns(t *testing.T) {
	spec := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{}}}
	p := &overlaidProvider{}
	_, of, err := p.wrap(func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) { return nil, nil, nil })(nodeutil.ProviderConfig{Node: spec})
	if err != nil {
		t.Fatal(err)
	}
	p.change(nodepools.Overlay{Labels: map[string]string{"tier": "back"}})
	var reported *corev1.Node
	of.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { reported = n })
	if reported == nil || reported.Labels["tier"] != "back" {
		t.Errorf("it reported %+v", reported)
	}
}

// What a provider has reported takes as little as it can, for it is kept for each node; a
// report about one of two equal lists changes no other.
func TestEqualResourcesAreKeptOnce(t *testing.T) {
	p := &overlaidProvider{reported: reported{name: "vk"}}
	p.keep(&corev1.Node{Status: corev1.NodeStatus{Capacity: cpus("4"), Allocatable: cpus("4")}})
	p.reported.capacity["probe"] = p.reported.capacity[corev1.ResourceCPU]
	if _, ok := p.reported.allocatable["probe"]; !ok {
		t.Error("capacity and allocatable are equal, and two maps")
	}
	p.keep(&corev1.Node{Status: corev1.NodeStatus{Allocatable: cpus("3")}})
	if capacity, allocatable := p.reported.capacity.Cpu().String(), p.reported.allocatable.Cpu().String(); capacity != "4" || allocatable != "3" {
		t.Errorf("it has %s CPUs and can allocate %s, want 4 and 3", capacity, allocatable)
	}
}
