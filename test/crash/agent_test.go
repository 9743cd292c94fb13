//go:build integration || containers

package crash

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// agent is virtual-kubelet: a process that is killed and started again.
type agent struct {
	t       *testing.T
	args    []string
	log     *os.File
	process *exec.Cmd // nil while there is none
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
	a.process = exec.Command(filepath.Join(bin, "virtual-kubelet"), a.args...)
	a.process.Stdout, a.process.Stderr = a.log, a.log
	a.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(a.t, a.process.Start())
}

// kill gives the agent no chance to do anything about it.
func (a *agent) kill() {
	a.t.Helper()
	if a.process == nil {
		return
	}
	_ = a.process.Process.Kill()
	if err := a.process.Wait(); a.process.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		a.t.Errorf("virtual-kubelet ended by itself: %v", err)
	}
	a.process = nil
}

// stop asks the agent to end.
func (a *agent) stop() {
	a.t.Helper()
	must(a.t, a.process.Process.Signal(syscall.SIGTERM))
	if err := a.process.Wait(); err != nil {
		a.t.Errorf("virtual-kubelet did not end well: %v", err)
	}
	a.process = nil
}
