package main

import (
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
)

func TestConformanceRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--capabilities", "logs,flying"}, []string{"--capabilities", `"flying"`, "port-forward"}},
		{[]string{"--require", "flying"}, []string{"--require", `"flying"`}},
		{[]string{"--require", "exec", "--capabilities", "logs"}, []string{"--require", "exec", "--capabilities"}},
		{[]string{"--skip", "logs-follow,nothing"}, []string{"--skip", `"nothing"`}},
		{[]string{"--nodename", ""}, []string{"--nodename"}},
		{[]string{"--timeout", "0s"}, []string{"--timeout"}},
		{[]string{"--parallel", "0"}, []string{"--parallel"}},
		{[]string{"extra"}, []string{"extra"}},
	} {
		noCluster(t)
		status, stdout, stderr := execute(t, append([]string{"conformance"}, c.args...)...)
		if status == 0 || stdout != "" {
			t.Errorf("%q: exit status %d, %q", c.args, status, stdout)
		}
		for _, want := range c.says {
			if !strings.Contains(stderr, want) {
				t.Errorf("%q: %q is missing in %q", c.args, want, stderr)
			}
		}
	}
}

// What the exit status says: see the help.
func TestConformanceVerdict(t *testing.T) {
	core, logs := nodecheck.Check{Name: "pod-runs"}, nodecheck.Check{Name: "logs", Needs: []nodecheck.Capability{nodecheck.Logs}}
	for _, c := range []struct {
		what    string
		require []string
		results []nodecheck.Result
		bad     string
	}{
		{"all is well", nil, []nodecheck.Result{{Check: core, Outcome: nodecheck.Passed}, {Check: logs, Outcome: nodecheck.Passed}}, ""},
		{"the core fails", nil, []nodecheck.Result{{Check: core, Outcome: nodecheck.Failed}}, "pod-runs"},
		{"the core is not supported", nil, []nodecheck.Result{{Check: core, Outcome: nodecheck.NotSupported}}, "pod-runs"},
		{"something else fails", nil, []nodecheck.Result{{Check: logs, Outcome: nodecheck.Failed}}, ""},
		{"something required fails", []string{"logs"}, []nodecheck.Result{{Check: logs, Outcome: nodecheck.Failed}}, "logs"},
		{"something required is not supported", []string{"all"}, []nodecheck.Result{{Check: logs, Outcome: nodecheck.NotSupported}}, "logs"},
		{"something required is skipped", []string{"all"}, []nodecheck.Result{{Check: logs, Outcome: nodecheck.Skipped}}, ""},
	} {
		required, err := nodecheck.ParseCapabilities(c.require)
		if err != nil {
			t.Fatal(err)
		}
		o := conformanceOptions{required: required}
		err = o.verdict(c.results)
		if (err == nil) != (c.bad == "") || err != nil && !strings.HasSuffix(err.Error(), ": "+c.bad) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
