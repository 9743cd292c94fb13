package main

import (
	"context"
	"os"
	"path/filepath"
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
		{[]string{"--stop-command", "true"}, []string{"--stop-command", "--start-command", "belong together"}},
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

// The agent is started again also after a failure, and the error has the command's output.
func TestConformanceRestart(t *testing.T) {
	for _, c := range []struct{ what, stop, start, says string }{
		{"all is well", "true", "true", ""},
		{"it is not stopped", "echo no such unit >&2; exit 5", "true", "no such unit"},
		{"it is not started", "true", "echo port in use; exit 1", "port in use"},
	} {
		file, down := filepath.Join(t.TempDir(), "started"), 0
		err := restartBy(c.stop, "touch "+file+"; "+c.start)(t.Context(), func(context.Context) error {
			down++
			if _, err := os.Stat(file); err == nil {
				t.Errorf("%s: it is started while it was to be down", c.what)
			}
			return nil
		})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: it is not started again: %v", c.what, err)
		}
		if want := strings.Count(c.stop, "true"); down != want {
			t.Errorf("%s: %d calls while it was down, want %d", c.what, down, want)
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
		{"something required is skipped since what it needs has failed", []string{"logs"}, []nodecheck.Result{{Check: logs, Outcome: nodecheck.Skipped, Blocked: true}}, "logs"},
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
