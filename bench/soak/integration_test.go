//go:build integration

package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

// A soak of seconds measures all that it shows, and leaves nothing. Whether anything grows takes
// hours to see.
func TestSoakOfSeconds(t *testing.T) {
	dir := t.TempDir()
	var stdout bytes.Buffer
	command := newCommand()
	command.SetArgs([]string{"--bin", "../../bin", "--out", dir, "--pods", "20", "--rate", "4", "--for", "24s", "--every", "6s"})
	command.SetOut(&stdout)
	command.SetErr(t.Output())
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &stdout)
	result, err := report.Load(filepath.Join(dir, "soak-mock-20.json"))
	if err != nil {
		t.Fatal(err)
	}
	sample := result.Agents[0].Samples[0]
	for _, m := range result.Measures {
		if _, ok := sample.Values[m.Name]; !ok {
			t.Errorf("%q was not measured", m.Name)
		}
	}
	for _, m := range result.Course {
		if got := len(sample.Course[m.Name]); got < 3 || got > 4 {
			t.Errorf("%d values of %q, want one for each six seconds", got, m.Name)
		}
	}
	if sample.Values[replaced] < 20 || sample.Values[podsLeft] != 0 || sample.Values[left] != 0 {
		t.Errorf("%v pods replaced, %v counted and %v left at the end", sample.Values[replaced], sample.Values[podsLeft], sample.Values[left])
	}
}
