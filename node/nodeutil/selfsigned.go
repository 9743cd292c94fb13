package nodeutil

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// WithSelfSignedCertificate serves with a certificate made on the spot, for the
// given host and the other names and addresses of the node. It is kept in memory
// only, and is valid for a year. The API server accepts it unless it was started with
// --kubelet-certificate-authority.
func WithSelfSignedCertificate(host string, addresses []corev1.NodeAddress) func(*tls.Config) error {
	return func(cfg *tls.Config) error {
		names := []string{host}
		for _, address := range addresses {
			names = append(names, address.Address)
		}
		pair, err := selfSigned(names, time.Now())
		if err != nil {
			return fmt.Errorf("cannot make a self-signed certificate for %s: %w", host, err)
		}
		cfg.Certificates = append(cfg.Certificates, pair)
		return nil
	}
}

// selfSigned makes a certificate for names and addresses, the first of which is its
// subject. Its key is one of an elliptic curve: an RSA key takes a tenth of a second and
// more to find, which would be most of the CPU time of a start.
func selfSigned(names []string, now time.Time) (none tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, err
	}
	certificate := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s@%d", names[0], now.Unix())},
		NotBefore:             now.Add(-time.Hour), // clocks differ
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			certificate.IPAddresses = append(certificate.IPAddresses, ip)
		} else {
			certificate.DNSNames = append(certificate.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key)
	if err != nil {
		return none, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return none, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
