package nodepools_test

import (
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
)

// What is wrong with one pool leaves the nodes of the others, and keeps all Nodes from
// being deleted; what is wrong with the file leaves none.
func TestPoolsWithWhichNothingIsWrong(t *testing.T) {
	const good, bad = "{name: good, count: 2}", "{name: bad, count: 1, provider: nope}"
	for text, nodes := range map[string]string{
		"name: edge, deleteNodes: true, pools: [" + good + ", " + bad + "]":           "good-0 good-1",
		"name: edge, deleteNodes: true, pools: [" + bad + ", " + good + "]":           "good-0 good-1",
		"name: edge, deleteNodes: true, pools: [" + good + ", {count: 1}]":            "good-0 good-1",
		"name: edge, deleteNodes: true, pools: [{name: none, count: 0}, " + bad + "]": "",
		"name: edge, deleteNodes: true, pools: [" + bad + "]":                         "nothing",
		"deleteNodes: true, pools: [" + good + ", " + bad + "]":                       "nothing",
		"name: edge, nope: 1, pools: [" + good + ", " + bad + "]":                     "nothing",
	} {
		wanted, err := nodepools.Parse([]byte("{apiVersion: virtual-kubelet.io/v1alpha1, kind: NodePools, "+text+"}"), options())
		if err == nil {
			t.Fatalf("%s: no error", text)
		}
		got := "nothing"
		if wanted != nil {
			var names []string
			for _, n := range wanted.Nodes {
				names = append(names, n.Name)
			}
			got = strings.Join(names, " ")
			if wanted.DeleteNodes {
				t.Errorf("%s: Nodes are to be deleted", text)
			}
		}
		if got != nodes {
			t.Errorf("%s: got %s, want %s (%v)", text, got, nodes, err)
		}
	}
}
