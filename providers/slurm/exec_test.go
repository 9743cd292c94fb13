package slurm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

// output is a client of a command without input.
type output struct{ out, err bytes.Buffer }

type writer struct{ io.Writer }

func (writer) Close() error { return nil }

func (o *output) Stdin() io.Reader            { return nil }
func (o *output) Stdout() io.WriteCloser      { return writer{&o.out} }
func (o *output) Stderr() io.WriteCloser      { return writer{&o.err} }
func (o *output) TTY() bool                   { return false }
func (o *output) Resize() <-chan api.TermSize { return nil }

// Commands end with any exit code, also those that the scripts, or ssh, have a meaning for.
func TestExitCodesOfCommands(t *testing.T) {
	for name, ssh := range map[string][]string{"here": nil, "by ssh": {"/bin/sh", "-c"}} {
		t.Run(name, func(t *testing.T) { exitCodes(t, ssh) })
	}
}

func exitCodes(t *testing.T, ssh []string) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bin/srun":                       "#!/bin/bash\nwhile [ \"${1#--}\" != \"$1\" ]; do shift; done\nexec \"$@\"\n",
		"pods/one/state":                 "tags {}\nbegun 7 node1 192.0.2.1\n",
		"pods/one/run":                   jobScript,
		"pods/one/pod":                   "policy='Never'\ninits=()\ncontainers=('main')\n",
		"pods/one/containers/main/enter": "exec \"$@\"\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	config := Config{Cluster: "test", Root: filepath.Join(dir, "pods"), Environment: map[string]string{"PATH": filepath.Join(dir, "bin") + ":/usr/bin:/bin"}}
	if err := config.complete(); err != nil {
		t.Fatal(err)
	}
	shell := &login.Shell{Environment: config.Environment, SSH: ssh}
	b := newBackend(config, shell)
	run := func(script string) (code int, client *output) {
		client = &output{}
		err := b.Exec(t.Context(), &podgroup.Unit{ID: "7", Data: "one"}, "main", []string{"sh", "-c", script}, client)
		if exit, ok := errors.AsType[utilexec.ExitError](err); ok {
			return exit.ExitStatus(), client
		}
		if err != nil {
			t.Errorf("%s: %v", script, err)
		}
		return 0, client
	}
	for _, want := range []int{0, 3, login.NotFound, 254, 255} {
		if got, client := run(fmt.Sprintf("echo out; echo wrong >&2; exit %d", want)); got != want || client.out.String() != "out\n" || client.err.String() != "wrong\n" {
			t.Errorf("a command that exits with %d: %d, %q, %q", want, got, &client.out, &client.err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "pods", "one", "exec.*")); len(left) > 0 {
		t.Errorf("commands leave %v", left)
	}
	for _, broken := range []string{"exit 255", `sh -c "$0"; exit 255`} { // before the command runs, and after that
		shell.SSH = []string{"/bin/sh", "-c", broken}
		if err := b.Exec(t.Context(), &podgroup.Unit{ID: "7", Data: "one"}, "main", []string{"sh", "-c", "exit 3"}, &output{}); !errdefs.IsUnavailable(err) {
			t.Errorf("with a connection that breaks off by %q a command returns %v", broken, err)
		}
	}
	shell.SSH = ssh
	if err := os.RemoveAll(filepath.Join(dir, "pods", "one")); err != nil {
		t.Fatal(err)
	}
	if code, client := run("true"); code != 254 || !strings.Contains(client.err.String(), "gone") {
		t.Errorf("a command of a pod that is gone: %d, %q", code, &client.err)
	}
}
