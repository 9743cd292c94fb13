package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The files of a ConfigMap that is mounted are links to links: what they hold
// changes, and nothing about them.
func TestPoolFileOfAConfigMap(t *testing.T) {
	dir := t.TempDir()
	file := func(version, name string) string { return filepath.Join(dir, version, name) }
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writePools(t, file("v1", "pools.yaml"), `{pools: [{name: a, count: 1, providerConfig: mock.json}]}`)
	writePools(t, file("v2", "pools.yaml"), `{pools: [{name: a, count: 2, providerConfig: mock.json}]}`)
	config := func(version, text string) {
		t.Helper()
		if err := os.WriteFile(file(version, "mock.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config("v1", `{}`)
	config("v2", `{}`)
	link("v1", "..data")
	link("..data/pools.yaml", "pools.yaml")
	link("..data/mock.json", "mock.json")

	p := newPoolFile(&options{poolsFile: filepath.Join(dir, "pools.yaml"), provider: "mock", os: "linux"})
	var taken contents
	wantNodes := func(want int) {
		t.Helper()
		wanted, read, err := p.load(nil)
		taken = read
		if err != nil || len(wanted.Nodes) != want {
			t.Fatalf("got %+v and %v, want %d nodes", wanted, err, want)
		}
		if !maps.Equal(taken.again(), taken) {
			t.Error("what was just read seems to have changed")
		}
	}
	changed := func(what string) {
		t.Helper()
		if maps.Equal(taken.again(), taken) {
			t.Errorf("%s was not seen", what)
		}
	}
	wantNodes(1)
	link("v2", "..data")
	changed("a swapped link")
	wantNodes(2)
	config("v2", `{"a-0": {"cpu": "3"}}`)
	changed("a change of the provider's configuration")
	wantNodes(2)
	if err := os.Remove(file("v2", "mock.json")); err != nil {
		t.Fatal(err)
	}
	changed("that the provider's configuration is gone")
	if _, _, err := p.load(nil); err == nil {
		t.Error("a file that names one that is not there is taken")
	}
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
	wanted, _, err := p.load(nil)
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
