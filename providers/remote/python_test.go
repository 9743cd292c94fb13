//go:build integration

package remote_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

// The example in Python runs pods, and goes on while the node ends and begins again.
func TestPython(t *testing.T) {
	t.Parallel()
	const name = "providertest-remote-python"
	dir := t.TempDir()
	generate := exec.Command("/usr/bin/python3", "-m", "grpc_tools.protoc", "-Iv1alpha1", "--python_out="+dir, "--grpc_python_out="+dir, "provider.proto")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("the stubs cannot be made (apt-get install python3-grpcio python3-grpc-tools): %v\n%s", err, out)
	}
	program, err := filepath.Abs(filepath.Join("examples", "python", "provider.py"))
	if err != nil {
		t.Fatal(err)
	}
	address := "unix://" + filepath.Join(dir, "provider.sock")
	provider := exec.Command("/usr/bin/python3", program, address, name)
	provider.Env = append(os.Environ(), "PYTHONPATH="+dir, "TMPDIR="+dir, "PYTHONDONTWRITEBYTECODE=1")
	provider.Stdout, provider.Stderr = t.Output(), t.Output()
	provider.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = provider.Process.Kill()
		_ = provider.Wait()
	})
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return remote.New(context.Background(), init, remote.Config{Address: address})
		},
		Capabilities: []providertest.Capability{providertest.Commands, providertest.Logs, providertest.Exec, providertest.SurvivesRestart},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     name,
	}.Run(t)
}
