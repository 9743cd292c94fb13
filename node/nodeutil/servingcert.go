package nodeutil

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// errNoServingCertificate is why a handshake fails; the client only sees that
// there was an internal error.
var errNoServingCertificate = errors.New("have no serving certificate yet: its signing request waits to be approved")

// WithServingCertificateFromCluster serves the kubelet API with a certificate
// that the cluster signs (signer kubernetes.io/kubelet-serving), for the node's
// addresses, and has it renewed before it expires and when the addresses change.
// Certificate and key are kept in dir, which each node needs for itself, in
// kubelet-server-current.pem.
//
// It is requested once the node has registered. Kubernetes approves it by
// itself of no node: "kubectl certificate approve" or an approver does. Approvers
// expect that the node asks for it as system:node:NAME (see NodeIdentity). Until
// then the node runs, but handshakes fail, and so do logs and exec.
func WithServingCertificateFromCluster(dir string) NodeOpt {
	return func(cfg *NodeConfig) error {
		if dir == "" {
			return errdefs.InvalidInput("the serving certificate from the cluster needs a directory to be kept in: none was given")
		}
		cfg.ServingCertDir = dir
		return nil
	}
}

// checkServing refuses two sources of the serving certificate.
func (cfg *NodeConfig) checkServing() error {
	if cfg.ServingCertDir == "" || cfg.TLSConfig == nil {
		return nil
	}
	if len(cfg.TLSConfig.Certificates) > 0 || cfg.TLSConfig.GetCertificate != nil || cfg.TLSConfig.GetConfigForClient != nil {
		return errdefs.InvalidInput("the serving certificate is to come from the cluster, but the TLS configuration has one: leave out one of the two")
	}
	return nil
}

// useServingCert has config present the certificate that the cluster signs.
func (n *Node) useServingCert(ctx context.Context, config *tls.Config) error {
	user := nodeUser(n.cfg.NodeSpec.Name)
	signed := &signedCert{
		signer: certificatesv1.KubeletServingSignerName,
		usages: certificate.DefaultKubeletServingGetUsages,
		wanted: func() *x509.CertificateRequest { return servingRequest(n.cfg.NodeSpec.Name, n.endpoint.addresses()) },
		client: func(*tls.Certificate) (kubernetes.Interface, error) { return n.cfg.Client, nil },
	}
	if err := signed.open(ctx, n.cfg.ServingCertDir, "kubelet-server", user.CommonName); err != nil {
		return err
	}
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if pair := signed.current(); pair != nil {
			return pair, nil
		}
		return nil, errNoServingCertificate
	}
	n.endpoint.moved = signed.reconsider
	n.serving = signed
	n.servingLife.signed.Store(signed)
	return nil
}

// rotateServingCert has the certificate signed once the node is registered, for
// approvers compare its addresses with the Node's.
func (n *Node) rotateServingCert(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.nodes.Ready():
	}
	if n.serving.wanted() == nil {
		log.G(ctx).Warn("The node has no address, so that no serving certificate can be requested for it: have the provider tell one")
	}
	n.serving.run(ctx)
	return nil
}

// servingRequest asks for a certificate for the addresses, whose order does not matter, or is
// nil where there is none.
func servingRequest(nodeName string, addresses []corev1.NodeAddress) *x509.CertificateRequest {
	request := &x509.CertificateRequest{Subject: nodeUser(nodeName)}
	for _, address := range addresses {
		ip := net.ParseIP(address.Address)
		switch {
		case ip != nil && !slices.ContainsFunc(request.IPAddresses, ip.Equal):
			request.IPAddresses = append(request.IPAddresses, ip)
		case ip == nil && address.Address != "" && !slices.Contains(request.DNSNames, address.Address):
			request.DNSNames = append(request.DNSNames, address.Address)
		}
	}
	if len(request.IPAddresses)+len(request.DNSNames) == 0 {
		return nil
	}
	slices.Sort(request.DNSNames)
	slices.SortFunc(request.IPAddresses, func(a, b net.IP) int { return bytes.Compare(a.To16(), b.To16()) })
	return request
}
