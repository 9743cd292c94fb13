package nodepools_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
)

func TestDiff(t *testing.T) {
	node := func(name string, changes ...func(*nodepools.Node)) nodepools.Node {
		n := nodepools.Node{Name: name, OS: "linux", Provider: "mock", Port: 10250}
		n.Labels, n.Taints, n.Capacity = map[string]string{"tier": "front"}, taint("k", "v"), corev1.ResourceList{"cpu": resource.MustParse("1")}
		for _, change := range changes {
			change(&n)
		}
		return n
	}
	amended := map[string]func(*nodepools.Node){
		"a label":       func(n *nodepools.Node) { n.Labels = map[string]string{"tier": "back"} },
		"no label":      func(n *nodepools.Node) { n.Labels = nil },
		"an annotation": func(n *nodepools.Node) { n.Annotations = map[string]string{"a": "b"} },
		"a taint":       func(n *nodepools.Node) { n.Taints = taint("k", "w") },
		"capacity":      func(n *nodepools.Node) { n.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2")} },
	}
	replaced := map[string]func(*nodepools.Node){
		"os":            func(n *nodepools.Node) { n.OS = "windows" },
		"provider":      func(n *nodepools.Node) { n.Provider = "cloud" },
		"configuration": func(n *nodepools.Node) { n.ProviderConfig = "{}" },
		"port":          func(n *nodepools.Node) { n.Port++ },
	}
	running := map[string]nodepools.Node{"a": node("a"), "b": node("b")}
	check := func(what string, wanted []nodepools.Node, want nodepools.Changes) {
		t.Helper()
		if got := nodepools.Diff(running, wanted); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	check("nothing", []nodepools.Node{node("b"), node("a")}, nodepools.Changes{})
	check("the same quantity in other words", []nodepools.Node{node("a", func(n *nodepools.Node) {
		n.Capacity = corev1.ResourceList{"cpu": resource.MustParse("1000m")}
	}), node("b")}, nodepools.Changes{})
	check("all others", []nodepools.Node{node("c"), node("d")}, nodepools.Changes{
		Removed: []string{"a", "b"}, Added: []nodepools.Node{node("c"), node("d")},
	})
	for what, change := range amended {
		check(what, []nodepools.Node{node("a", change), node("b")}, nodepools.Changes{Amended: []nodepools.Node{node("a", change)}})
		for other, more := range replaced {
			both := node("a", change, more)
			check(what+" and "+other, []nodepools.Node{both, node("b")}, nodepools.Changes{Replaced: []nodepools.Node{both}})
		}
	}
}
