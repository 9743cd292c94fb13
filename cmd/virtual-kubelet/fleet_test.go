package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // which wait in real time
	os.Exit(m.Run())
}

// The file that docs and deploy show.
func TestExampleOfPools(t *testing.T) {
	example, err := os.ReadFile("../../deploy/nodepools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), string(example)) {
		t.Error("docs/scale.md does not show deploy/nodepools.yaml as it is")
	}
	p := newPoolFile(&options{poolsFile: "../../deploy/nodepools.yaml", os: "linux"})
	wanted, err := p.Load()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range wanted.Nodes {
		names = append(names, n.Name)
	}
	if want := []string{"front-0", "front-1", "front-2", "edge0.example.com", "edge1.example.com"}; !slices.Equal(names, want) {
		t.Errorf("its nodes are %q, want %q", names, want)
	}
}
