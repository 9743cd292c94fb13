package cri

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
)

// Two processes whose pods come from elsewhere, so that no lease of a node keeps one of them away, do
// not run the same pods.
func TestOneProcessHasTheRoot(t *testing.T) {
	root := t.TempDir()
	begin := func() (*Provider, error) {
		var cfg Config
		cfg.Endpoint, cfg.Root, cfg.LogRoot = "unix://"+filepath.Join(root, "no.sock"), filepath.Join(root, "node"), filepath.Join(root, "logs")
		n := machine.Node{Name: "n1", Sent: true}
		n.Node, n.HostIPs = &corev1.Node{}, func() []string { return nil }
		return New(t.Context(), n, cfg)
	}
	first, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin(); err == nil || !strings.Contains(err.Error(), "is in use by another") {
		t.Errorf("got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
