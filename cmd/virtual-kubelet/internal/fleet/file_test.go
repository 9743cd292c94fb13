package fleet

import (
	"maps"
	"os"
	"path/filepath"
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

	p := NewFile(mockOptions(filepath.Join(dir, "pools.yaml")), nil)
	var read contents
	wantNodes := func(want int) {
		t.Helper()
		wanted, got, err := p.load(nil)
		read = got
		if err != nil || len(wanted.Nodes) != want {
			t.Fatalf("got %+v and %v, want %d nodes", wanted, err, want)
		}
		if !maps.Equal(read.again(), read) {
			t.Error("what was just read seems to have changed")
		}
	}
	changed := func(what string) {
		t.Helper()
		if maps.Equal(read.again(), read) {
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
		t.Error("a file that names one that is not there is accepted")
	}
}
