//go:build !chosen_providers || (provider_remote && provider_mock)

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

func TestServeProviderRefusesWrongFlags(t *testing.T) {
	for args, says := range map[string][]string{
		"": {`--provider is ""`, "mock", "--nodename is missing", "--listen"},
		"--provider zun --nodename a --listen unix:///s":                      {`--provider is "zun"`, "process"},
		"--provider mock --nodename a --listen unix://s":                      {"unix:///PATH"},
		"--provider mock --nodename a --listen unix:///s --client-ca-file f":  {"a unix socket has no certificates"},
		"--provider mock --nodename a --listen :9443 --tls-cert-file f":       {"--tls-private-key-file", "are required"},
		"--provider mock --nodename a --listen unix:///s --node-address here": {`--node-address is "here"`},
		"--provider mock --nodename a --listen unix:///s --log-level loud":    {"--log-level"},
	} {
		status, _, stderr := execute(t, append([]string{"serve-provider"}, strings.Fields(args)...)...)
		if status != exitUsage {
			t.Errorf("%s: exit status %d: %s", args, status, stderr)
		}
		for _, text := range says {
			if !strings.Contains(stderr, text) {
				t.Errorf("%s: no %q in %s", args, text, stderr)
			}
		}
	}
}

// Over TCP, virtual kubelets show certificates of the authority that is meant for them.
func TestServeProviderOverTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, authority := range []string{"servers", "clients", "strangers"} {
		issue(t, dir, authority, "")
	}
	issue(t, dir, "server", "servers")
	issue(t, dir, "client", "clients")
	issue(t, dir, "stranger", "strangers")
	ports, err := daemon.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	o := serveProviderOptions{
		providerFlags: providerFlags{provider: "mock", logLevel: "info", logFormat: "text"}, node: "vk", address: "127.0.0.1",
		listen: fmt.Sprintf("127.0.0.1:%d", ports[0]), certFile: file("server.crt"), keyFile: file("server.key"), clientCAFile: file("clients.crt"),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx, &bytes.Buffer{}) }()
	connect := func(client string) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{}, Annotations: map[string]string{}}}
		_, health, err := remote.New(ctx, nodeutil.ProviderConfig{Node: node}, remote.Config{
			Address: o.listen, StartTimeout: metav1.Duration{Duration: 5 * time.Second},
			TLS: &remote.TLS{CAFile: file("servers.crt"), CertFile: file(client + ".crt"), KeyFile: file(client + ".key")},
		})
		if err != nil {
			return err
		}
		return health.Ping(ctx)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if err = connect("client"); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Errorf("a virtual kubelet cannot connect: %v", err)
	}
	if err := connect("stranger"); err == nil {
		t.Error("somebody with the certificate of another authority can connect")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// issue writes a certificate and its key, NAME.crt and NAME.key: one of an authority, or of one.
func issue(t *testing.T, dir, name, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA: authority == "", BasicConstraintsValid: true,
	}
	parent, signer := template, key
	if authority != "" {
		parent, signer = readIssued(t, dir, authority)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func readIssued(t *testing.T, dir, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	read := func(suffix string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name+suffix))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		return block.Bytes
	}
	certificate, err := x509.ParseCertificate(read(".crt"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParseECPrivateKey(read(".key"))
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}
