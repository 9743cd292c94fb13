package nodeutil_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// presented is the name in the certificate that a server shows a client which,
// as the API server, names no host.
func presented(t *testing.T, address, serverName string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, ServerName: serverName})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// warnings counts what is logged as a warning.
type warnings struct {
	log.Logger
	mu    sync.Mutex
	lines []string
}

func (w *warnings) WithField(string, any) log.Logger { return w }
func (w *warnings) WithFields(log.Fields) log.Logger { return w }
func (w *warnings) WithError(error) log.Logger       { return w }
func (w *warnings) Info(...any)                      {}
func (w *warnings) Debug(...any)                     {}
func (w *warnings) Error(args ...any)                { w.Warn(args...) }
func (w *warnings) Warn(args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, arg := range args {
		if text, ok := arg.(string); ok {
			w.lines = append(w.lines, text)
		}
	}
}

func (w *warnings) count(part string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.lines {
		if strings.Contains(text, part) {
			n++
		}
	}
	return n
}

func TestKeyPairFollowsItsFiles(t *testing.T) {
	logged := &warnings{Logger: log.L}
	before := log.L
	log.L = logged
	t.Cleanup(func() { log.L = before })

	ca := newAuthority(t)
	cert, key := ca.issue(t, "first", x509.ExtKeyUsageServerAuth)
	certFile, keyFile := write(t, "tls.crt", cert), write(t, "tls.key", key)
	address := serving(t, handledBy(answering("hello")), nodeutil.WithTLSConfig(nodeutil.WithKeyPairFromPath(certFile, keyFile)))
	if got := presented(t, address, ""); got != "first" {
		t.Fatalf("the server presents %s", got)
	}

	// The certificate is replaced before its key, as it happens.
	cert, key = ca.issue(t, "second", x509.ExtKeyUsageServerAuth)
	overwrite(t, certFile, cert)
	eventually(t, "it is logged that the pair cannot be used", func() bool {
		if got := presented(t, address, ""); got != "first" {
			t.Fatalf("the server presents %s, whose key is not there yet", got)
		}
		return logged.count("Cannot use the new serving certificate") > 0
	})
	overwrite(t, keyFile, key)
	eventually(t, "the second certificate is presented", func() bool { return presented(t, address, "") == "second" })
	if n := logged.count("Cannot use the new serving certificate"); n != 1 {
		t.Errorf("the same problem was logged %d times, want once", n)
	}

	// Without its files it stays.
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is logged that the file is gone", func() bool {
		if got := presented(t, address, ""); got != "second" {
			t.Fatalf("the server presents %s", got)
		}
		return logged.count("Cannot use the new serving certificate") == 2
	})
}

// Secrets are mounted as symbolic links that are swapped.
func TestKeyPairFollowsSymbolicLinks(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	fill := func(version string) {
		cert, key := ca.issue(t, version, x509.ExtKeyUsageServerAuth)
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		overwrite(t, filepath.Join(dir, version, "tls.crt"), cert)
		overwrite(t, filepath.Join(dir, version, "tls.key"), key)
		if err := os.Symlink(version, filepath.Join(dir, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	fill("v1")
	address := serving(t, handledBy(answering("hello")),
		nodeutil.WithTLSConfig(nodeutil.WithKeyPairFromPath(filepath.Join(dir, "data", "tls.crt"), filepath.Join(dir, "data", "tls.key"))))
	fill("v2")
	eventually(t, "the new certificate is presented", func() bool { return presented(t, address, "") == "v2" })
}

func TestKeyPairsByHostName(t *testing.T) {
	ca := newAuthority(t)
	pair := func(name string) func(*tls.Config) error {
		cert, key := ca.issue(t, name, x509.ExtKeyUsageServerAuth)
		return nodeutil.WithKeyPairFromPath(write(t, "tls.crt", cert), write(t, "tls.key", key))
	}
	static := func(config *tls.Config) error {
		pair, err := tls.X509KeyPair(ca.issue(t, "static.example", x509.ExtKeyUsageServerAuth))
		config.Certificates = append(config.Certificates, pair)
		return err
	}
	address := serving(t, handledBy(answering("hello")), nodeutil.WithTLSConfig(static, pair("one.example"), pair("two.example")))
	for name, want := range map[string]string{
		"": "static.example", "static.example": "static.example", "one.example": "one.example", "two.example": "two.example",
	} {
		if got := presented(t, address, name); got != want {
			t.Errorf("a client that asks for %q gets %s, want %s", name, got, want)
		}
	}
}

var _ log.Logger = (*warnings)(nil)
