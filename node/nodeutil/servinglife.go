package nodeutil

import (
	"crypto/tls"
	"crypto/x509"
	"math"
	"sync/atomic"
	"time"
)

// servingLife follows for the metrics how long the serving certificate is valid
// yet. Where the certificate comes from is the TLS configuration's matter; what
// is seen here is what clients were shown last.
type servingLife struct {
	leaf   atomic.Pointer[x509.Certificate]
	signed atomic.Pointer[signedCert] // nil unless the cluster signs it
}

// of records the certificates that config presents.
func (l *servingLife) of(config *tls.Config) {
	if len(config.Certificates) > 0 {
		l.record(&config.Certificates[0])
	}
	present := config.GetCertificate
	if present == nil {
		return
	}
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := present(hello)
		if err == nil && pair != nil {
			l.record(pair)
		}
		return pair, err
	}
}

func (l *servingLife) record(pair *tls.Certificate) {
	if pair.Leaf != nil {
		l.leaf.Store(pair.Leaf)
	}
}

// ttl is the rest of the certificate's life in seconds; infinite while there is
// none.
func (l *servingLife) ttl() float64 {
	if signed := l.signed.Load(); signed != nil {
		return signed.ttl()
	}
	leaf := l.leaf.Load()
	if leaf == nil {
		return math.Inf(1)
	}
	return time.Until(leaf.NotAfter).Seconds()
}

// renewErrors is how often the cluster could not be had to sign it.
func (l *servingLife) renewErrors() int64 {
	if signed := l.signed.Load(); signed != nil {
		return signed.failures.Load()
	}
	return 0
}

// requestAge is since when, in seconds, the cluster has been asked to sign it.
func (l *servingLife) requestAge() float64 {
	if signed := l.signed.Load(); signed != nil {
		return signed.requestAge()
	}
	return 0
}
