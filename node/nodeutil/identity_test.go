package nodeutil

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const bootstrapKubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: secret-token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func bootstrapFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bootstrap")
	if err := os.WriteFile(path, []byte(bootstrapKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestIdentityIsTheCertificateThatWasKept(t *testing.T) {
	dir := t.TempDir()
	newSigner(t).kept(dir, "kubelet-client", "system:node:vk", time.Now(), time.Now().Add(time.Hour))
	identity, err := NewNodeIdentity(t.Context(), NodeIdentityConfig{NodeName: "vk", BootstrapKubeconfig: bootstrapFile(t), CertDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := identity.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
	config := identity.Config()
	file := filepath.Join(dir, "kubelet-client-current.pem")
	if config.Host != "https://192.0.2.1:6443" || config.BearerToken != "" || config.CertFile != file || config.KeyFile != file {
		t.Errorf("the client config is %v", config)
	}
	if identity.Config() == config {
		t.Error("two callers got the same config")
	}
}

func TestIdentityWaitsForACertificate(t *testing.T) {
	dir := t.TempDir()
	newSigner(t).kept(dir, "kubelet-client", "system:node:vk", time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)) // as good as none
	identity, err := NewNodeIdentity(t.Context(), NodeIdentityConfig{NodeName: "vk", BootstrapKubeconfig: bootstrapFile(t), CertDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	late := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	if err := identity.WaitReady(ctx); !errors.Is(err, late) {
		t.Errorf("got %v, want the context's cause", err)
	}
}

func TestIdentityThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	newSigner(t).kept(dir, "kubelet-client", "system:node:other", time.Now(), time.Now().Add(time.Hour))
	for name, test := range map[string]struct {
		cfg  NodeIdentityConfig
		want string
	}{
		"no directory":      {NodeIdentityConfig{NodeName: "vk", BootstrapKubeconfig: bootstrapFile(t)}, "set all three"},
		"no kubeconfig":     {NodeIdentityConfig{NodeName: "vk", BootstrapKubeconfig: "/nowhere", CertDir: t.TempDir()}, "/nowhere"},
		"another's":         {NodeIdentityConfig{NodeName: "vk", BootstrapKubeconfig: bootstrapFile(t), CertDir: dir}, "system:node:other"},
		"no such directory": {NodeIdentityConfig{NodeName: "vk", BootstrapKubeconfig: bootstrapFile(t), CertDir: "/dev/null/x"}, "/dev/null/x"},
	} {
		_, err := NewNodeIdentity(t.Context(), test.cfg)
		if err == nil || !strings.Contains(err.Error(), test.want) || !errdefs.IsInvalidInput(err) {
			t.Errorf("%s: got %v, want an error of class InvalidInput with %q", name, err, test.want)
		}
	}
}
