//go:build !chosen_providers || (provider_remote && provider_mock)

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

func TestServeProviderRefusesWrongFlags(t *testing.T) {
	for args, says := range map[string][]string{
		"": {`--provider is ""`, "mock", "--nodename is missing", "--listen"},
		"--provider zun --nodename a --listen unix:///s":                      {`--provider is "zun"`, "process"},
		"--provider mock --nodename a --listen unix://s":                      {"unix:///PATH"},
		"--provider mock --nodename a --listen unix:///s --client-ca-file f":  {"a unix socket has no certificates"},
		"--provider mock --nodename a --listen :9443 --tls-cert-file f":       {"--tls-private-key-file", "all who connect could run pods"},
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

// logTo returns ctx with a log of its own: that of the process is for one command.
func logTo(ctx context.Context, w io.Writer) context.Context {
	return log.WithLogger(ctx, vkslog.FromSlog(slog.New(slog.NewTextHandler(w, nil))))
}

// Over TCP, virtual kubelets show certificates of the authority that is meant for them. All files can
// be replaced.
func TestServeProviderOverTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, authority := range []string{"servers", "clients", "strangers"} {
		issue(t, dir, authority, "", nil)
	}
	issue(t, dir, "server", "servers", nil)
	issue(t, dir, "client", "clients", nil)
	issue(t, dir, "stranger", "strangers", nil)
	issue(t, dir, "expired", "clients", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	issue(t, dir, "another-server", "clients", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	ports, err := daemon.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	o := serveProviderOptions{
		providerFlags: providerFlags{provider: "mock", logLevel: "info", logFormat: "text"}, node: "vk", address: "127.0.0.1",
		listenFlags: listenFlags{listen: fmt.Sprintf("127.0.0.1:%d", ports[0]), certFile: file("server.crt"), keyFile: file("server.key"), clientCAFile: file("clients.crt")},
	}
	var logged lockedbuffer.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.run(logTo(ctx, &logged)) }()
	// The node is reached where its virtual kubelet is.
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	connect := func() error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{}, Annotations: map[string]string{}}}
		node.Status.Addresses = slices.Clone(addresses)
		provider, health, err := remote.New(ctx, nodeutil.ProviderConfig{Node: node}, remote.Config{
			Address: o.listen, TLS: &remote.TLS{CAFile: file("servers.crt"), CertFile: file("client.crt"), KeyFile: file("client.key")},
		})
		if err != nil {
			return err
		}
		defer provider.(io.Closer).Close()
		if !slices.Equal(node.Status.Addresses, addresses) {
			t.Errorf("the node has the addresses %v, want %v", node.Status.Addresses, addresses)
		}
		return health.Ping(ctx)
	}
	if err := connect(); err != nil { // it waits until there is a server
		t.Errorf("a virtual kubelet cannot connect: %v", err)
	}
	// shake returns an error if the server or the client refuses the other.
	shake := func(client, authority string) error {
		roots := x509.NewCertPool()
		certificate, _ := readIssued(t, dir, authority)
		roots.AddCert(certificate)
		config := &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}
		if client != "" {
			pair, err := tls.LoadX509KeyPair(file(client+".crt"), file(client+".key"))
			if err != nil {
				t.Fatal(err)
			}
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		conn, err := tls.Dial("tcp", o.listen, config)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // a server of HTTP/2 speaks first
		return err
	}
	if err := shake("client", "servers"); err != nil {
		t.Error(err)
	}
	if err := shake("", "servers"); err == nil {
		t.Error("somebody without a certificate can connect")
	}
	for client, says := range map[string]string{"stranger": "unknown authority", "expired": "has expired", "another-server": "incompatible key usage"} {
		if err := shake(client, "servers"); err == nil {
			t.Errorf("somebody with the certificate %q can connect", client)
		}
		if !strings.Contains(logged.String(), says) { // a client may see no more than a broken connection
			t.Errorf("the log has not %q, of the certificate %q:\n%s", says, client, logged.String())
		}
	}

	issue(t, dir, "servers", "", nil)
	issue(t, dir, "clients", "", nil)
	issue(t, dir, "server", "servers", nil)
	if err := shake("client", "servers"); err == nil {
		t.Error("somebody with a certificate of an authority that was replaced can connect")
	}
	issue(t, dir, "client", "clients", nil)
	if err := errors.Join(shake("client", "servers"), connect()); err != nil {
		t.Errorf("after all files were replaced: %v", err)
	}
	if err := os.WriteFile(file("server.crt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := shake("client", "servers"); err == nil {
			t.Error("a connection without a certificate of the server")
		}
	}
	if n := strings.Count(logged.String(), file("server.crt")); n != 1 {
		t.Errorf("the log has %d times why nobody can connect:\n%s", n, logged.String())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// issue writes a certificate and its key, NAME.crt and NAME.key: one of an authority, or of one.
func issue(t *testing.T, dir, name, authority string, change func(*x509.Certificate)) {
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
	if change != nil {
		change(template)
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
