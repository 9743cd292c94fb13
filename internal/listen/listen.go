// Package listen listens for programs that may run pods and read Secrets: at a unix socket of one
// user, or over TLS.
package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Files are files in PEM, which are read for each connection, so that they can be replaced.
type Files struct {
	// Cert and Key are what clients are shown.
	Cert, Key string
	// ClientCA has the authorities that sign the certificates of clients; without it clients need none.
	ClientCA string
}

// At listens at unix:///PATH, as Unix does, or at ADDRESS:PORT: over TLS if there is a certificate.
// protocols are those of ALPN. The error is also that of files that cannot be used; where they cannot
// be used later, connections fail, and the log of ctx has why.
func At(ctx context.Context, address string, files Files, protocols ...string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return Unix(path)
	}
	if files.Cert != "" {
		if _, err := files.config(protocols, nil); err != nil {
			return nil, err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil || files.Cert == "" {
		return listener, err
	}
	// Anybody can connect, and does so again.
	broken, refused := rate.Sometimes{Interval: time.Minute}, rate.Sometimes{First: 10, Interval: time.Minute}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS13, // GetConfigForClient has the rest
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			current, err := files.config(protocols, func(err error) { // the client may not read the answer
				refused.Do(func() {
					log.G(ctx).WithField("address", hello.Conn.RemoteAddr().String()).WithError(err).Warn("Refused the certificate of a client")
				})
			})
			if err != nil {
				broken.Do(func() { log.G(ctx).WithError(err).Error("Nobody can connect") })
			}
			return current, err
		},
	}), nil
}

// config reads the files. refused is called with why the certificate of a client is refused.
func (f Files) config(protocols []string, refused func(error)) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s cannot be used: %w", f.Cert, f.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protocols, Certificates: []tls.Certificate{pair}}
	if f.ClientCA == "" {
		return config, nil
	}
	authorities, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("authorities of clients cannot be read: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s, of authorities of clients, has no certificate in PEM", f.ClientCA)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAnyClientCert, roots
	config.VerifyConnection = func(state tls.ConnectionState) error {
		intermediates := x509.NewCertPool()
		for _, cert := range state.PeerCertificates[1:] {
			intermediates.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			refused(err)
		}
		return err
	}
	return config, nil
}
