package interlink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// clientCertificate reads the node's certificate.
func (t TLS) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("TLS.CertFile and TLS.KeyFile cannot be used: %w", err)
	}
	return &pair, nil
}

// readCA reads the CA that signs the server's certificate.
func readCA(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the CA of the interLink API server cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return pool, nil
}

// token reads the bearer token, for one request; nil without one.
func (c *Config) token(context.Context) (*oauth2.Token, error) {
	if c.VKTokenFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.VKTokenFile)
	if err != nil {
		return nil, fmt.Errorf("VKTokenFile cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" { // it is being written
		return nil, errors.New("VKTokenFile is empty")
	}
	return &oauth2.Token{AccessToken: token, Expiry: time.Now()}, nil
}
