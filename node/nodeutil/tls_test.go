package nodeutil_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// authority is a CA for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns the PEM of a certificate and its key.
func (a *authority) issue(t *testing.T, name string, usage x509.ExtKeyUsage) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"crew"}}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// client is a TLS configuration with a client certificate.
func (a *authority) client(t *testing.T, name string) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(a.issue(t, name, x509.ExtKeyUsageClientAuth))
	if err != nil {
		t.Fatal(err)
	}
	config := insecure()
	config.Certificates = []tls.Certificate{pair}
	return config
}

func write(t *testing.T, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSelfSignedByDefault(t *testing.T) {
	address := serving(t, handledBy(answering("hello")))
	if _, body, err := get(t, "https://"+address, insecure()); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	state := conn.ConnectionState()
	if !slices.Contains(state.PeerCertificates[0].DNSNames, "vk") || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("names %v, protocol %s", state.PeerCertificates[0].DNSNames, state.NegotiatedProtocol)
	}
}

func TestSelfSignedWhereOptionsBringNoCertificate(t *testing.T) {
	ca := newAuthority(t)
	address := serving(t, handledBy(answering("hello")), nodeutil.WithTLSConfig(nodeutil.WithCACert(ca.pem)))
	if _, body, err := get(t, "https://"+address, ca.client(t, "me")); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestSelfSignedNames(t *testing.T) {
	var config tls.Config
	err := nodeutil.WithSelfSignedCertificate("vk", []corev1.NodeAddress{{Address: "10.1.2.3"}, {Address: "fd00::1"}, {Address: "vk.example.org"}})(&config)
	if err != nil {
		t.Fatal(err)
	}
	leaf := config.Certificates[0].Leaf
	trusted := x509.NewCertPool()
	trusted.AddCert(leaf)
	for _, host := range []string{"vk", "10.1.2.3", "fd00::1", "vk.example.org"} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: trusted, CurrentTime: time.Now().AddDate(0, 11, 0)}); err != nil {
			t.Error(err)
		}
	}
	if leaf.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("the key is %v: one of RSA would be most of what a start costs", leaf.PublicKeyAlgorithm)
	}
}

func TestMinimumTLSVersion(t *testing.T) {
	address := serving(t, handledBy(answering("hello")), nodeutil.WithTLSConfig())
	for version, accepted := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if (err == nil) != accepted {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestCiphersAreSafe(t *testing.T) {
	safe := map[uint16]bool{}
	for _, suite := range tls.CipherSuites() {
		safe[suite.ID] = true
	}
	for _, id := range nodeutil.DefaultServerCiphers() {
		if !safe[id] {
			t.Errorf("%s is not safe", tls.CipherSuiteName(id))
		}
	}
}

func TestKeyPairAndClientCA(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	certPEM, keyPEM := ca.issue(t, "vk.example.org", x509.ExtKeyUsageServerAuth)
	address := serving(t, handledBy(answering("hello")), nodeutil.WithTLSConfig(
		nodeutil.WithKeyPairFromPath(write(t, "tls.crt", certPEM), write(t, "tls.key", keyPEM)),
		nodeutil.WithCAFromPath(write(t, "ca.crt", ca.pem)),
	))
	trusting := func(config *tls.Config) *tls.Config {
		config.InsecureSkipVerify = false
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AddCert(ca.cert)
		config.ServerName = "vk.example.org"
		return config
	}
	if _, body, err := get(t, "https://"+address, trusting(ca.client(t, "me"))); err != nil || body != "hello" {
		t.Errorf("with a certificate: %q, %v", body, err)
	}
	if _, _, err := get(t, "https://"+address, trusting(insecure())); err == nil {
		t.Error("a client without a certificate was let in")
	}
	if _, _, err := get(t, "https://"+address, trusting(stranger.client(t, "me"))); err == nil {
		t.Error("a client with a stranger's certificate was let in")
	}
}

func TestBadTLSInput(t *testing.T) {
	ca := newAuthority(t)
	certPEM, _ := ca.issue(t, "a", x509.ExtKeyUsageServerAuth)
	_, otherKey := ca.issue(t, "b", x509.ExtKeyUsageServerAuth)
	rubbish := write(t, "rubbish.pem", []byte("rubbish"))
	for name, test := range map[string]struct {
		opt  func(*tls.Config) error
		want string
	}{
		"no key pair":    {nodeutil.WithKeyPairFromPath("/nowhere/tls.crt", "/nowhere/tls.key"), "/nowhere/tls.crt"},
		"wrong key":      {nodeutil.WithKeyPairFromPath(write(t, "tls.crt", certPEM), write(t, "tls.key", otherKey)), "does not match"},
		"no CA file":     {nodeutil.WithCAFromPath("/nowhere/ca.crt"), "/nowhere/ca.crt"},
		"CA file no PEM": {nodeutil.WithCAFromPath(rubbish), rubbish},
		"CA no PEM":      {nodeutil.WithCACert([]byte("rubbish")), "no certificate found"},
		"CA empty":       {nodeutil.WithCACert(nil), "no certificate found"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithTLSConfig(test.opt))
			wantError(t, err, test.want)
			if !errdefs.IsInvalidInput(err) {
				t.Errorf("%v is not of class InvalidInput", err)
			}
		})
	}
}
