package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

func TestTableIntoADocument(t *testing.T) {
	dir := t.TempDir()
	result := report.Result{
		Title: "One pod", Measures: []report.Measure{{Name: "CPU", Unit: "s"}},
		Agents: []report.Agent{{Name: ourName, Samples: []report.Sample{{Values: map[string]float64{"CPU": 1.5}}}}},
	}
	for _, name := range []string{"pods-1", "pods-2"} {
		if err := result.Save(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	document := filepath.Join(dir, "performance.md")
	if err := os.WriteFile(document, []byte("before\n\n<!-- pods-1 -->\nold\n<!-- end pods-1 -->\n\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again makes no difference
		command := newCommand()
		command.SetOut(t.Output())
		command.SetArgs([]string{"table", filepath.Join(dir, "pods-1.json"), filepath.Join(dir, "pods-2.json"), "--into", document})
		if err := command.Execute(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		got := string(text)
		if !strings.HasPrefix(got, "before\n\n<!-- pods-1 -->\n\n| One pod |") || !strings.HasSuffix(got, "<!-- end pods-1 -->\n\nafter\n") ||
			strings.Count(got, "| CPU, s | 1.50 |") != 1 || !strings.Contains(got, "![One pod](performance/pods-1.svg)") || strings.Contains(got, "old") {
			t.Errorf("got\n%s", got)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "performance", "pods-1.svg")); err != nil {
		t.Error(err)
	}
}
