package providertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
)

// agentSuffix makes the name of the agent's node of that of the suite's.
const agentSuffix = "-killed"

// agent is a process that runs a node. It is killed, and started again.
type agent struct {
	node    *nodecheck.Node
	command func() *exec.Cmd
	running *exec.Cmd // nil while there is none
	log     *os.File  // rather than a pipe, which what outlives the agent would keep open
}

// runKill makes the checks around a restart of an agent that is killed.
func (s *Suite) runKill(t *testing.T, config *rest.Config, n *nodecheck.Node) {
	options := n.Options
	options.Name += agentSuffix
	log, err := os.Create(filepath.Join(t.ArtifactDir(), "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{log: log}
	options.Restart, options.Directories = a.restart, nil
	node, err := nodecheck.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	a.node = node
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	a.command = func() *exec.Cmd { return s.Agent(options.Name, kubeconfig) }
	t.Cleanup(func() { a.tearDown(t) })
	if err := a.start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := node.Poll(ctx, node.Ready); err != nil {
		t.Fatalf("waiting until the agent's node is Ready: %v", err)
	}
	s.runRestarting(t, node)
}

func (a *agent) start() error {
	command := a.command()
	command.Stdout, command.Stderr = a.log, a.log
	if err := command.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	a.running = command
	return nil
}

// restart gives the agent no chance to do anything about its end: see
// nodecheck.Options.
func (a *agent) restart(ctx context.Context, down func(context.Context) error) error {
	if err := a.end(syscall.SIGKILL); err != nil {
		return err
	}
	err := down(ctx)
	return errors.Join(err, a.start())
}

// end ends the agent by a signal, and returns an error if it had ended before, or did
// not end as that signal has it.
func (a *agent) end(signal syscall.Signal) error {
	command := a.running
	if command == nil {
		return nil
	}
	a.running = nil
	if err := command.Process.Signal(signal); err != nil {
		return fmt.Errorf("the agent had ended by itself: %w", errors.Join(err, command.Wait()))
	}
	err := command.Wait()
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == signal {
		return nil
	}
	if err != nil || signal == syscall.SIGKILL {
		return fmt.Errorf("the agent ended by itself with %v: %w", command.ProcessState, err)
	}
	return nil
}

// tearDown ends the agent, and removes its node from the cluster.
func (a *agent) tearDown(t *testing.T) {
	if err := a.end(syscall.SIGTERM); err != nil {
		t.Errorf("the agent did not end well: %v", err)
	}
	if text, err := os.ReadFile(a.log.Name()); t.Failed() {
		t.Logf("the end of the log of the agent:\n%s", text[max(0, len(text)-mostLog):])
		if err != nil {
			t.Logf("its log cannot be read: %v", err)
		}
	}
	_ = a.log.Close()
	err := a.node.Client.CoreV1().Nodes().Delete(context.Background(), a.node.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("cannot remove the agent's node: %v", err)
	}
}

// writeKubeconfig writes what a process needs to have the rights of config.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "providertest"
	content := clientcmdapi.NewConfig()
	content.Clusters[name] = &clientcmdapi.Cluster{
		Server: config.Host, TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure,
		CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData,
	}
	content.AuthInfos[name] = &clientcmdapi.AuthInfo{
		Token: config.BearerToken, TokenFile: config.BearerTokenFile, Username: config.Username, Password: config.Password, Exec: config.ExecProvider,
		ClientCertificate: config.CertFile, ClientCertificateData: config.CertData, ClientKey: config.KeyFile, ClientKeyData: config.KeyData,
	}
	content.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	content.CurrentContext = name
	if err := clientcmd.WriteToFile(*content, path); err != nil {
		return fmt.Errorf("write a kubeconfig for the agent: %w", err)
	}
	return nil
}
