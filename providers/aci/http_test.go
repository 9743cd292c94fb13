package aci

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci/acitest"
)

// All of the client, with a managed identity, over HTTPS.
func TestOverHTTPS(t *testing.T) {
	server := acitest.New(grouptest.New(0))
	server.PageSize = 1
	service := httptest.NewTLSServer(server)
	t.Cleanup(service.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file)
	t.Setenv("IDENTITY_ENDPOINT", service.URL+"/identity")
	t.Setenv("IDENTITY_HEADER", "header")
	cfg := testConfig()
	cfg.Endpoint = service.URL
	cluster := grouptest.NewCluster("home")
	p, err := New(cluster.Config(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { grouptest.Close(t, p) })
	for _, name := range []string{"a", "b", "c"} {
		pod := grouptest.NewPod(name)
		cluster.SetPod(pod)
		if err := p.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		pods, err := p.GetPods(t.Context())
		if err == nil && len(pods) == 3 && pods[0].Status.Phase == corev1.PodRunning {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v, %v", pods, err)
		}
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
