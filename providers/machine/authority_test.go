package machine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// An authority whose certificate cannot be written has no key either: with the key alone the node would
// not begin any more.
func TestAuthorityThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, authorityFile)
	if err := os.MkdirAll(filepath.Join(blocked, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := openAuthority(dir); err == nil {
		t.Fatal("there is an authority")
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	if _, err := openAuthority(dir); err != nil {
		t.Errorf("the next start fails, too: %v", err)
	}
}

// The clock was ahead, and was set since: what was signed then is valid now.
func TestCertificatesOfAClockThatWasAhead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, err := openAuthority(dir)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		time.Sleep(nodeLifetime) // after which the clock is set to now
		if err := a.renewNode(); err != nil {
			t.Fatal(err)
		}
		node, err := tls.LoadX509KeyPair(a.path(nodeFile), a.path(nodeKeyFile))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(a.cert)
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := a.signMachine("m", key.Public(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(signed)
		machine, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for when, at := range map[string]time.Time{"then": now, "before there was an authority": now.Add(-24 * time.Hour)} {
			for _, certificate := range []*x509.Certificate{node.Leaf, machine} {
				if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at}); err != nil {
					t.Errorf("%s, that of %s: %v", when, certificate.Subject.CommonName, err)
				}
			}
		}
	})
}
