package nodeutil

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// WithTLSConfig has the kubelet API served with a TLS configuration that allows
// TLS 1.2 and newer with modern cipher suites, changed by the given functions.
// It asks for client certificates but leaves it to the handler to check them
// (see WithAuth), unless WithCACert or WithCAFromPath is among the functions.
func WithTLSConfig(opts ...func(*tls.Config) error) NodeOpt {
	return func(cfg *NodeConfig) error {
		config := defaultTLSConfig()
		for _, opt := range opts {
			if err := opt(config); err != nil {
				return err
			}
		}
		cfg.TLSConfig = config
		cfg.caGiven = cfg.demandsCertificate()
		return nil
	}
}

func defaultTLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		CipherSuites: DefaultServerCiphers(),
		ClientAuth:   tls.RequestClientCert,
	}
}

// WithKeyPairFromPath serves with the certificate and key of two PEM files, and
// with new ones within a second of their being replaced. If the new ones cannot
// be used, the old ones stay and the reason is logged; the first ones must be
// right, else the error (of class InvalidInput) says which files and why. Given
// more than once, the client's host name decides.
func WithKeyPairFromPath(cert, key string) func(*tls.Config) error {
	return func(cfg *tls.Config) error {
		pair, err := pollKeyPair(cert, key)
		if err != nil {
			return err
		}
		addKeyPair(cfg, pair)
		return nil
	}
}

// WithCAFromPath is WithCACert with the contents of a file, which is read once.
// For a CA that follows its file see ClientCAFromFile.
func WithCAFromPath(path string) func(*tls.Config) error {
	return func(cfg *tls.Config) error {
		pem, err := os.ReadFile(path)
		if err != nil {
			return errdefs.AsInvalidInput(fmt.Errorf("cannot read the client CA: %w", err))
		}
		if err := WithCACert(pem)(cfg); err != nil {
			return fmt.Errorf("client CA %q: %w", path, err)
		}
		return nil
	}
}

// WithCACert demands of every client a certificate that one of the CAs in pem
// has signed. Where NodeConfig.Handler, or NodeConfig.Auth, has WebhookAuth, a client
// without a certificate may bring a bearer token instead, and one with a certificate
// is known by it.
func WithCACert(pem []byte) func(*tls.Config) error {
	return func(cfg *tls.Config) error {
		if cfg.ClientCAs == nil {
			cfg.ClientCAs = x509.NewCertPool()
		}
		if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
			return errdefs.InvalidInput("no certificate found in what should be PEM of a client CA")
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		return nil
	}
}

// DefaultServerCiphers are the cipher suites for TLS 1.2 that have forward
// secrecy and authenticated encryption; those of TLS 1.3 are not configurable.
func DefaultServerCiphers() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}
