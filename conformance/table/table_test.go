package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/junit"
)

func TestTable(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	results := func(node string, cases ...junit.Case) {
		t.Helper()
		s := junit.Suite{Begin: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 120, Cases: cases,
			Properties: []junit.Property{{Name: junit.Kubernetes, Value: "v9"}, {Name: junit.Setup, Value: "machine of " + node}}}
		data, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		write(node+"/junit.xml", data)
	}
	results("one", junit.Case{Name: "[a] spec *not* b"}, junit.Case{Name: "c", Failure: &junit.Message{Text: "broken"}}, junit.Case{Name: "e"})
	results("two", junit.Case{Name: "c", Skipped: &junit.Message{Text: "known"}}, junit.Case{Name: "d", Failure: &junit.Message{Text: "timeout"}}, junit.Case{Name: "e"})
	write("expected-failures-one.txt", nil)
	write("expected-failures-two.txt", []byte("# Needs wings.\n- c\n# Needs a fast machine.\nd\n"))

	write("specs.txt", []byte("c\ne\nf\n"))

	out := filepath.Join(dir, "table.md")
	if err := run([]string{"-results", dir, "-expected", dir, "-specs", filepath.Join(dir, "specs.txt"), "-out", out, "one", "two"}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| one | 2 | 1 | 0 | 0 | 3 | 2 | 2026-01-02 | v9 | machine of one |",
		"| two | 1 | 1 | 1 | 0 | 3 | 2 | 2026-01-02 | v9 | machine of two |",
		"## What did not pass\n\ntwo (not run): not run on this node\n\n- [a] spec \\*not\\* b\n\n" +
			"one (**failed**): broken\n\n- c\n\ntwo (left out): Needs wings.\n\n- c\n\none (not run): not run on this node\n\n- d\n\n" +
			"two (**failed**): Needs a fast machine.\n\n- d\n\none, two (not run): not run on this node\n\n- f\n",
		"## What passed on all nodes\n\nThe other 1 of [specs.txt](../conformance/specs.txt).\n",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the page lacks %q:\n%s", want, data)
		}
	}
}

func TestNodeWithoutResults(t *testing.T) {
	err := run([]string{"-results", t.TempDir(), "-out", filepath.Join(t.TempDir(), "table.md"), "cri"})
	if err == nil || !strings.Contains(err.Error(), "make conformance NODE=cri") {
		t.Errorf("got %v", err)
	}
}

func TestSpecsThatBeginTheSame(t *testing.T) {
	var b strings.Builder
	writeSpecs(&b, []string{"a b", "one two three four five six seven eight x y", "one two three four five six seven eight x z",
		"one two three four five six seven eight z", "one two three"})
	if got, want := b.String(), "- a b\n- one two three four five six seven eight …\n  - x y\n  - x z\n  - z\n- one two three\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
