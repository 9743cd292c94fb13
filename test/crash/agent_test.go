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

// agent is virtual-kubelet: a process that is killed and started again.
type agent struct {
	t       *testing.T
	args    []string
	log     *os.File
	process *daemon.Process // nil while there is none
}

// newAgent prepares an agent, and starts none.
func newAgent(t *testing.T, node string, m machine) *agent {
	t.Helper()
	config, err := json.Marshal(m.config())
	must(t, err)
	file := filepath.Join(t.TempDir(), "provider.json")
	must(t, os.WriteFile(file, config, 0o600))
	log, err := os.Create(filepath.Join(t.ArtifactDir(), "virtual-kubelet.log"))
	must(t, err)
	a := &agent{t: t, log: log, args: []string{
		"--kubeconfig", cluster.Kubeconfig(), "--nodename", node, "--port", "0", "--listen-address", "127.0.0.1",
		"--provider", m.provider(), "--provider-config", file, "--log-level", "debug",
	}}
	t.Cleanup(func() {
		a.kill()
		_ = log.Close()
	})
	return a
}

func (a *agent) start() {
	a.t.Helper()
	var err error
	a.process, err = daemon.Launch(exec.Command(filepath.Join(bin, "virtual-kubelet"), a.args...), a.log)
	must(a.t, err)
}

// kill gives the agent no chance to do anything about it.
func (a *agent) kill() {
	a.t.Helper()
	a.end(os.Kill)
}

// stop asks the agent to end.
func (a *agent) stop() {
	a.t.Helper()
	a.end(syscall.SIGTERM)
}

func (a *agent) end(signal os.Signal) {
	a.t.Helper()
	if a.process == nil {
		return
	}
	if err := a.process.Stop(signal); err != nil {
		a.t.Errorf("virtual-kubelet did not end well: %v", err)
	}
	a.process = nil
}
