package nodeutil

import (
	"crypto/tls"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// WithSelfSignedCertificate serves with a certificate made on the spot, for the
// given host and the other names and addresses of the node. It is kept in memory
// only, and is valid for a year. The API server accepts it unless it was started with
// --kubelet-certificate-authority.
func WithSelfSignedCertificate(host string, addresses []corev1.NodeAddress) func(*tls.Config) error {
	return func(cfg *tls.Config) error {
		var ips []net.IP
		var names []string
		for _, address := range addresses {
			if ip := net.ParseIP(address.Address); ip != nil {
				ips = append(ips, ip)
			} else {
				names = append(names, address.Address)
			}
		}
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, ips, names)
		if err != nil {
			return fmt.Errorf("cannot make a self-signed certificate for %s: %w", host, err)
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return fmt.Errorf("cannot use the self-signed certificate for %s: %w", host, err)
		}
		cfg.Certificates = append(cfg.Certificates, pair)
		return nil
	}
}
