// Package metricsservertest runs the real metrics-server on a control plane of a
// test. "make metrics-server" builds it.
package metricsservertest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// APIServerFlag is a flag that the API server has to have. metrics-server runs on
// this machine's loopback address. A Service of type ExternalName leads there, but
// only where the API server leaves the choice of endpoints to the network.
const APIServerFlag = "--enable-aggregator-routing=false"

// Start starts metrics-server with the rights of its manifests, and registers it
// with the aggregation layer, until the end of the test. root is the path of the
// checkout. It returns a channel that is closed when the process has ended, which
// it should not before the test does.
func Start(t *testing.T, c *controlplane.ControlPlane, root string) (ended <-chan struct{}) {
	t.Helper()
	dir := t.TempDir()
	kubectl(t, c, "", "apply", "-f", filepath.Join(root, "test/metricsserver/rbac.yaml"))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	writeKubeconfig(t, c, kubeconfig, strings.TrimSpace(kubectl(t, c, "", "create", "token", "metrics-server", "-n", "kube-system")))

	log, port := &lockedbuffer.Buffer{}, freePort(t) // late, since others might take the port until it is used
	server, err := daemon.Launch(exec.Command(filepath.Join(root, "bin/metrics-server"),
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir,
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname", "--kubelet-use-node-status-port",
		"--kubelet-insecure-tls", "--metric-resolution=10s", "--kubelet-request-timeout=5s"), log) // the least, and less
	if err != nil {
		t.Fatalf("%v: run \"make metrics-server\"", err)
	}
	t.Cleanup(func() {
		_ = server.Stop(syscall.SIGTERM) // the caller sees whether it has ended before
		if t.Failed() {
			t.Logf("log of metrics-server:\n%s", log)
		}
		// Discovery would go on to ask for it.
		if out, err := c.Kubectl(context.Background(), "delete", "--ignore-not-found", "apiservice", "v1beta1.metrics.k8s.io").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	apiService, err := os.ReadFile(filepath.Join(root, "test/metricsserver/apiservice.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, strings.ReplaceAll(string(apiService), "PORT", port), "apply", "-f", "-")
	return server.Done()
}

func kubectl(t *testing.T, c *controlplane.ControlPlane, stdin string, args ...string) string {
	t.Helper()
	command := c.Kubectl(t.Context(), args...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// writeKubeconfig writes a kubeconfig for the holder of a token.
func writeKubeconfig(t *testing.T, c *controlplane.ControlPlane, path, token string) {
	t.Helper()
	config := c.Config()
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
