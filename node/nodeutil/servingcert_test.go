package nodeutil

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// idle is a provider without pods.
type idle struct{ node.PodLifecycleHandler }

func (idle) GetPods(context.Context) ([]*corev1.Pod, error) { return nil, nil }

func makingIdle(cfg ProviderConfig) (Provider, node.NodeProvider, error) {
	cfg.Node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	return AsProvider(idle{}), nil, nil
}

func somewhere(cfg *NodeConfig) error {
	cfg.HTTPListenAddr = "127.0.0.1:0"
	cfg.Handler = http.NotFoundHandler()
	return nil
}

func TestServingCertificateFromTheCluster(t *testing.T) {
	s := newSigner(t)
	s.hold = true
	s.before = func() {
		if _, err := s.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "vk"); err != nil {
			t.Errorf("a certificate was requested before the node was registered: %v", err)
		}
	}
	n, err := NewNode("vk", makingIdle, WithClient(s), somewhere, WithServingCertificateFromCluster(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = n.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-n.Done() })
	if err := n.WaitReady(ctx, 20*time.Second); err != nil {
		t.Fatal(err) // without a certificate, too
	}
	registered, err := s.CoreV1().Nodes().Get(ctx, "vk", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", registered.Status.DaemonEndpoints.KubeletEndpoint.Port)
	roots := x509.NewCertPool()
	roots.AddCert(s.cert)
	dial := func() error {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots})
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	if err := dial(); err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("without a certificate: %v", err)
	}
	for limit := time.Now().Add(20 * time.Second); s.count() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("no certificate was requested")
		}
	}
	s.approve()
	for limit := time.Now().Add(20 * time.Second); dial() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal(dial())
		}
	}
}

func TestTwoSourcesOfTheServingCertificate(t *testing.T) {
	for name, opts := range map[string][]NodeOpt{
		"self-signed": {WithServingCertificateFromCluster("dir"), WithTLSConfig(WithSelfSignedCertificate("vk", nil))},
		"by callback": {WithTLSConfig(func(cfg *tls.Config) error {
			cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
			return nil
		}), WithServingCertificateFromCluster("dir")},
		"no directory": {WithServingCertificateFromCluster("")},
	} {
		if _, err := NewNode("vk", makingIdle, append(opts, WithClient(newSigner(t)))...); !errdefs.IsInvalidInput(err) {
			t.Errorf("%s: got %v, want an error of class InvalidInput", name, err)
		}
	}
}
