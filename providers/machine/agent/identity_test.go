package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeNode signs certificates, by a clock of its own.
type fakeNode struct {
	t      *testing.T
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	own    tls.Certificate
	ahead  time.Duration // its clock
	signed int
}

func newFakeNode(t *testing.T) *fakeNode {
	n := &fakeNode{t: t, key: newECDSA(t)}
	n.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "machines"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now(), NotAfter: time.Now().Add(1000 * time.Hour),
	}
	n.cert = n.sign(n.cert, n.key.Public())
	key := newECDSA(t)
	own := n.sign(&x509.Certificate{DNSNames: []string{NodeName}, NotAfter: n.cert.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, key.Public())
	n.own = tls.Certificate{Certificate: [][]byte{own.Raw}, PrivateKey: key}
	return n
}

func newECDSA(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (n *fakeNode) sign(template *x509.Certificate, public any) *x509.Certificate {
	n.t.Helper()
	template.SerialNumber, template.NotBefore = big.NewInt(1), n.cert.NotBefore
	der, err := x509.CreateCertificate(rand.Reader, template, n.cert, public, n.key)
	if err != nil {
		n.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		n.t.Fatal(err)
	}
	return cert
}

func encoded(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

// RoundTrip implements http.RoundTripper: it gives a machine its certificate, for a day.
func (n *fakeNode) RoundTrip(r *http.Request) (*http.Response, error) {
	var in CertificateRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(in.CSR)
	if err != nil {
		return nil, err
	}
	n.signed++
	cert := n.sign(&x509.Certificate{DNSNames: []string{ServerName(in.Machine)}, NotAfter: time.Now().Add(n.ahead + 24*time.Hour)}, csr.PublicKey)
	text, err := json.Marshal(CertificateAnswer{Certificate: encoded(cert), RenewAfterSeconds: int64((12 * time.Hour).Seconds())})
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(text))}, err
}

// dial connects with the agent. Over a net.Pipe both would wait for the other to read.
func (n *fakeNode) dial(i *identity) error {
	n.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		n.t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		n.t.Fatal(err)
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		defer server.Close()
		_, _, _ = i.credentials().ServerHandshake(server) // of which the client has the error
	})
	return tls.Client(client, &tls.Config{
		RootCAs: i.roots, ServerName: ServerName(i.bootstrap.Machine), Certificates: []tls.Certificate{n.own}, NextProtos: []string{"h2"},
		Time: func() time.Time { return time.Now().Add(n.ahead) },
	}).HandshakeContext(n.t.Context())
}

// A certificate that has expired by the clock of the node, which was behind or whose host was suspended, is
// renewed when the node refuses it, and not hours later: the machine counts as one that is out of reach.
// Who refuses it all the time does not have it renewed all the time.
func TestCertificateThatTheNodeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		key, err := NewKey()
		if err != nil {
			t.Fatal(err)
		}
		i, err := newIdentity(Bootstrap{Machine: "default-a-1", URL: "https://node", CA: encoded(n.cert)}, key)
		if err != nil {
			t.Fatal(err)
		}
		i.client = &http.Client{Transport: n}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answer, err := i.obtain(ctx)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = i.renew(ctx, answer) }() // ends with ctx
		if err := n.dial(i); err != nil {
			t.Fatalf("the node refuses the first certificate: %v", err)
		}
		time.Sleep(time.Hour)
		n.ahead = 48 * time.Hour
		if n.dial(i) == nil {
			t.Fatal("the certificate has not expired")
		}
		synctest.Wait()
		if err := n.dial(i); err != nil || n.signed != 2 {
			t.Errorf("after %d certificates: %v", n.signed, err)
		}
		n.ahead = -100000 * time.Hour
		for range 600 {
			if n.dial(i) == nil {
				t.Fatal("it is valid long before there was an authority")
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n.signed > 13 {
			t.Errorf("%d certificates were made in ten minutes", n.signed)
		}
	})
}
