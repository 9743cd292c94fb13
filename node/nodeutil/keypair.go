package nodeutil

import (
	"crypto/tls"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// pollKeyPair follows the files of a certificate and its key.
func pollKeyPair(certFile, keyFile string) (*polledFiles[*tls.Certificate], error) {
	pair, err := pollFiles("serving certificate", func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		return &pair, err
	}, certFile, keyFile)
	if err != nil {
		return nil, errdefs.AsInvalidInput(fmt.Errorf("cannot serve with certificate %q and key %q: %w", certFile, keyFile, err))
	}
	return pair, nil
}

// addKeyPair has the key pair served, beside those that config has already; of
// those that suit a client the one that was given first.
func addKeyPair(config *tls.Config, pair *polledFiles[*tls.Certificate]) {
	earlier, static := config.GetCertificate, config.Certificates
	// Go asks GetCertificate about clients that name no host, such as the API
	// server, only where there is nothing else.
	config.Certificates = nil
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if earlier != nil {
			if pair, err := earlier(hello); err == nil && pair != nil && hello.SupportsCertificate(pair) == nil {
				return pair, nil
			}
		}
		for i := range static {
			if hello.SupportsCertificate(&static[i]) == nil {
				return &static[i], nil
			}
		}
		return pair.current(hello.Context()), nil
	}
}
