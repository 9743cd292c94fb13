package agent

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// The delay before the node is asked again.
	firstRetry, lastRetry = time.Second, 15 * time.Second
	// requestTimeout is that of one request, and maxAnswer the size in bytes of its answer.
	requestTimeout, maxAnswer = 20 * time.Second, 64 << 10
	// maxRefused is after how many refusals the agent ends.
	maxRefused = 5
)

// NewKey returns a new key in PEM, for Options.Key.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// identity is the agent's key with its certificate.
type identity struct {
	bootstrap Bootstrap
	key       crypto.Signer
	roots     *x509.CertPool
	client    *http.Client
	current   atomic.Pointer[tls.Certificate]
	refused   chan struct{} // a client has refused the current one
}

func newIdentity(b Bootstrap, keyPEM []byte) (*identity, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errdefs.InvalidInput("the agent's key is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errdefs.InvalidInputf("the agent's key cannot be read: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errdefs.InvalidInput("the agent's key is none of ECDSA")
	}
	i := &identity{bootstrap: b, key: key, roots: x509.NewCertPool(), refused: make(chan struct{}, 1)}
	if !i.roots.AppendCertsFromPEM([]byte(b.CA)) {
		return nil, errdefs.InvalidInput("the bootstrap data have no certificate in the field ca")
	}
	i.client = &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			Proxy: nil, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: i.roots, ServerName: NodeName, Time: i.now},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return i, nil
}

// now is the time for checking certificates.
func (i *identity) now() time.Time {
	if now := time.Now(); now.After(i.bootstrap.Time) {
		return now
	}
	return i.bootstrap.Time
}

// server is the configuration of TLS of the agent, whose only client is the node.
func (i *identity) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: i.now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.current.Load(), nil },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: i.roots,
		VerifyConnection: func(state tls.ConnectionState) error { return state.PeerCertificates[0].VerifyHostname(NodeName) },
	}
}

// credentials are those of the agent as a server, which knows when the node refuses its certificate.
func (i *identity) credentials() credentials.TransportCredentials {
	return serverCredentials{credentials.NewTLS(i.server()), i}
}

type serverCredentials struct {
	credentials.TransportCredentials
	identity *identity
}

// ServerHandshake implements credentials.TransportCredentials.
func (c serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		select {
		case c.identity.refused <- struct{}{}:
		default:
		}
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials {
	return serverCredentials{c.TransportCredentials.Clone(), c.identity}
}

// errRefused is the error of a node that refuses the machine for good.
var errRefused = errors.New("the node refuses this machine: its token has been used with another key, or it is another machine's")

// obtain asks the node for a certificate until it gives one, refuses, or ctx ends.
func (i *identity) obtain(ctx context.Context) (CertificateAnswer, error) {
	delay, refused := firstRetry, 0
	for {
		answer, err := i.ask(ctx)
		if errors.Is(err, errRefused) {
			refused++
		}
		if err == nil || refused == maxRefused {
			return answer, err
		}
		if ctx.Err() != nil {
			return answer, context.Cause(ctx)
		}
		log.G(ctx).WithField("retryAfter", delay.String()).WithError(err).Warn("The node gives no certificate")
		if err := sleep(ctx, delay); err != nil {
			return answer, err
		}
		delay = min(2*delay, lastRetry)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask makes one request.
func (i *identity) ask(ctx context.Context) (answer CertificateAnswer, err error) {
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, i.key)
	if err != nil {
		return answer, err
	}
	body, err := json.Marshal(CertificateRequest{i.bootstrap.Machine, i.bootstrap.Token, csr})
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(i.bootstrap.URL, "/")+CertificatePath, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := i.client.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case response.StatusCode == http.StatusForbidden:
		return answer, errRefused
	case response.StatusCode != http.StatusOK:
		return answer, fmt.Errorf("the node answers %s: %s", response.Status, strings.TrimSpace(string(text[:min(len(text), 500)])))
	case err != nil:
		return answer, err
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, err
	}
	return answer, i.accept(answer.Certificate)
}

// accept takes a certificate, which has to be one of this key.
func (i *identity) accept(certificate string) error {
	key, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair([]byte(certificate), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	if err != nil {
		return fmt.Errorf("the node's certificate cannot be used: %w", err)
	}
	i.current.Store(&pair)
	return nil
}

// leastRenewal is the least time between two certificates, and leastRefused that before one which takes
// the place of one that was refused: anybody who can connect can do that.
const leastRenewal, leastRefused = time.Second, time.Minute

// renew keeps the certificate fresh until ctx ends.
func (i *identity) renew(ctx context.Context, answer CertificateAnswer) error {
	for {
		i.wait(ctx, max(leastRenewal, time.Duration(answer.RenewAfterSeconds)*time.Second))
		next, err := i.obtain(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		answer = next
	}
}

// wait waits until the certificate is to be renewed, or ctx ends. That is before it expires, and when it is
// refused: by the clock of the node it has expired if that has jumped, or was behind, or if the machine was
// suspended, whose own clocks may have stood still.
func (i *identity) wait(ctx context.Context, after time.Duration) {
	least := min(after, leastRefused)
	_ = sleep(ctx, least)
	rest := time.NewTimer(after - least)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-i.refused:
	case <-ctx.Done():
	}
}
