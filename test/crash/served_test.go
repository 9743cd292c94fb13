//go:build integration

package crash

import (
	"path/filepath"
	"testing"
)

// The provider is a process of its own: server and node are killed in turn, and both at once.
func TestServed(t *testing.T) {
	how := usual()
	how.rounds = (how.rounds + 1) / 2
	testCrashes(t, &servedMachine{newProcess(t), filepath.Join(t.TempDir(), "provider.sock")}, how)
}

// servedMachine is this machine, whose provider another process serves.
type servedMachine struct {
	*processMachine
	socket string
}

var _ crowd = (*servedMachine)(nil)

func (*servedMachine) provider() string { return "remote" }

func (m *servedMachine) config() any { return map[string]any{"address": "unix://" + m.socket} }

func (m *servedMachine) others(t *testing.T, node string, _ *population) []victim {
	return []victim{newProgram(t, "serve-provider.log", "serve-provider",
		"--provider", "process", "--provider-config", configFile(t, m.processMachine.config()),
		"--nodename", node, "--listen", "unix://"+m.socket, "--log-level", "debug")}
}
