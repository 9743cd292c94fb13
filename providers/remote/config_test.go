package remote_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

func TestMistakesInTheConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "address: it is required",
		"address: provider.sock":             "neither unix:///PATH nor HOST:PORT",
		"address: unix://provider.sock":      "no absolute path",
		"address: provider.example.com:9443": "tls: it is required",
		"address: unix:///run/p.sock\ntls: {caFile: a, certFile: b, keyFile: c}": "a unix socket has none",
		"address: host:1\ntls: {caFile: a}":                                      "tls.certFile: it is required",
		"address: unix:///run/p.sock\ncallTimeout: -1s":                          "callTimeout: -1s is negative",
		"adress: unix:///run/p.sock":                                             `unknown field "adress"`,
	} {
		if _, err := remote.ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// authority signs certificates into files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.sign(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign writes NAME.crt and NAME.key.
func (a *authority) sign(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// Only who has a certificate of the right authority is served, and trusted.
func TestTLS(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	for _, a := range []*authority{ours, others} {
		a.sign(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		a.sign(t, "server", &x509.Certificate{DNSNames: []string{"provider.example.com"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(ours.dir, "server.crt"), filepath.Join(ours.dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serverOf(t, newPlain(), nil)
	grpcServer := grpc.NewServer(append(s.ServerOptions(), grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})))...)
	s.Register(grpcServer)
	ended := make(chan error, 1)
	go func() { ended <- grpcServer.Serve(listener) }()
	t.Cleanup(func() {
		grpcServer.Stop()
		<-ended
	})

	for name, test := range map[string]struct {
		ca, client *authority
		serverName string
		want       string
	}{
		"right":             {ours, ours, "provider.example.com", ""},
		"another name":      {ours, ours, "other.example.com", "not other.example.com"},
		"another authority": {others, ours, "provider.example.com", "unknown authority"},
		"another client":    {ours, others, "provider.example.com", "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			config := remote.Config{Address: listener.Addr().String(), TLS: &remote.TLS{
				CAFile: filepath.Join(test.ca.dir, "ca.crt"), ServerName: test.serverName,
				CertFile: filepath.Join(test.client.dir, "client.crt"), KeyFile: filepath.Join(test.client.dir, "client.key"),
			}}
			config.StartTimeout.Duration = time.Minute
			if test.want != "" {
				config.StartTimeout.Duration = 500 * time.Millisecond
			}
			p, _, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual-1", Labels: map[string]string{}}}}, config)
			if err == nil {
				defer func() { _ = p.(*remote.Provider).Close() }()
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
