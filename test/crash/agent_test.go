//go:build integration || containers

package crash

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

// victim is something that is killed, and started again.
type victim interface {
	start() // it, unless it runs
	kill()  // gives it no chance to do anything about it
	stop()  // asks it to end
}

// program is virtual-kubelet: a process that is killed and started again.
type program struct {
	t       *testing.T
	args    []string
	log     *os.File
	process *daemon.Process // nil while there is none
}

// newAgent prepares the agent of a node, and starts none.
func newAgent(t *testing.T, node string, m machine) *program {
	t.Helper()
	return newProgram(t, "virtual-kubelet.log",
		"--kubeconfig", cluster.Kubeconfig(), "--nodename", node, "--port", "0", "--listen-address", "127.0.0.1",
		"--provider", m.provider(), "--provider-config", configFile(t, m.config()), "--log-level", "debug")
}

// configFile returns a file with the configuration of a provider.
func configFile(t *testing.T, config any) string {
	t.Helper()
	text, err := json.Marshal(config)
	must(t, err)
	file := filepath.Join(t.TempDir(), "provider.json")
	must(t, os.WriteFile(file, text, 0o600))
	return file
}

// newProgram prepares a virtual-kubelet with these arguments.
func newProgram(t *testing.T, logName string, args ...string) *program {
	t.Helper()
	log, err := os.Create(filepath.Join(t.ArtifactDir(), logName))
	must(t, err)
	p := &program{t: t, log: log, args: args}
	t.Cleanup(func() {
		p.kill()
		_ = log.Close()
	})
	return p
}

func (p *program) start() {
	p.t.Helper()
	if p.process != nil {
		return
	}
	var err error
	p.process, err = daemon.Launch(exec.Command(filepath.Join(bin, "virtual-kubelet"), p.args...), p.log)
	must(p.t, err)
}

func (p *program) kill() {
	p.t.Helper()
	p.end(os.Kill)
}

func (p *program) stop() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
}

func (p *program) end(signal os.Signal) {
	p.t.Helper()
	if p.process == nil {
		return
	}
	if err := p.process.Stop(signal); err != nil {
		p.t.Errorf("virtual-kubelet did not end well: %v", err)
	}
	p.process = nil
}
