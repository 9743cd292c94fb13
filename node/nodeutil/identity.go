package nodeutil

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/connrotation"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/kubeconfig"
)

// NodeIdentityConfig configures a NodeIdentity. All fields are required.
type NodeIdentityConfig struct {
	// NodeName is the name of the node.
	NodeName string

	// BootstrapKubeconfig is the path of a kubeconfig whose user may request the
	// certificate of a node, most often with a bootstrap token. It also says
	// where the API server is, so that it must stay; its credentials are used
	// only while there is no valid certificate, and are read again each time.
	BootstrapKubeconfig string

	// CertDir is the directory in which certificate and key are kept, in
	// kubelet-client-current.pem. It is made if there is none. Each node needs
	// one of its own; without the same one at the next start the node is
	// bootstrapped again.
	CertDir string
}

// NodeIdentity is the identity that a kubelet has: the user system:node:NAME in
// the group system:nodes, by a client certificate that the cluster signs
// (signer kubernetes.io/kube-apiserver-client-kubelet) and that is renewed
// before it expires. The API server lets it do no more than a node has to (the
// Node authorizer and the NodeRestriction admission). Make one with
// NewNodeIdentity; its methods may be called from several goroutines.
type NodeIdentity struct {
	signed *signedCert
	dialer *connrotation.Dialer
	server *rest.Config // without credentials
}

// NewNodeIdentity reads the files that cfg names. It fails, with class
// InvalidInput, if they are no use, or if the certificate is that of another
// node. One that has expired is as good as none.
func NewNodeIdentity(ctx context.Context, cfg NodeIdentityConfig) (*NodeIdentity, error) {
	if cfg.NodeName == "" || cfg.BootstrapKubeconfig == "" || cfg.CertDir == "" {
		return nil, errdefs.InvalidInput("a node's identity needs the node's name, a kubeconfig to bootstrap it, and a directory for its certificate: set all three")
	}
	bootstrap, err := loadBootstrap(cfg.BootstrapKubeconfig)
	if err != nil {
		return nil, err
	}
	i := &NodeIdentity{
		dialer: connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext),
		server: rest.AnonymousClientConfig(bootstrap),
	}
	user := nodeUser(cfg.NodeName)
	i.signed = &signedCert{
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		usages: certificate.DefaultKubeletClientGetUsages,
		wanted: func() *x509.CertificateRequest { return &x509.CertificateRequest{Subject: user} },
		client: func(current *tls.Certificate) (kubernetes.Interface, error) {
			if current != nil {
				return kubernetes.NewForConfig(i.Config())
			}
			bootstrap, err := loadBootstrap(cfg.BootstrapKubeconfig)
			if err != nil {
				return nil, err
			}
			return kubernetes.NewForConfig(bootstrap)
		},
		replaced: i.reconnect,
	}
	if err := i.signed.open(ctx, cfg.CertDir, "kubelet-client", user.CommonName); err != nil {
		return nil, err
	}
	return i, nil
}

func loadBootstrap(path string) (*rest.Config, error) {
	config, err := kubeconfig.Load(path, "")
	if err != nil {
		return nil, errdefs.AsInvalidInput(fmt.Errorf("cannot use bootstrap kubeconfig %q, which also says where the API server is: %w", path, err))
	}
	return config, nil
}

var (
	clientTTLDesc = prometheus.NewDesc("kubelet_certificate_manager_client_ttl_seconds",
		"[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.", nil, nil)
	clientErrorsDesc = prometheus.NewDesc("kubelet_certificate_manager_client_expiration_renew_errors",
		"[ALPHA] Counter of certificate renewal errors.", nil, nil)
	clientRequestDesc = requestAgeDesc("client")
)

var _ prometheus.Collector = (*NodeIdentity)(nil)

// Describe implements prometheus.Collector.
func (i *NodeIdentity) Describe(descs chan<- *prometheus.Desc) {
	descs <- clientTTLDesc
	descs <- clientErrorsDesc
	descs <- clientRequestDesc
}

// Collect implements prometheus.Collector: how long the certificate is valid yet,
// and how often it could not be renewed, under the kubelet's names, and since when another
// one waits to be signed. The caller
// registers it where it likes.
func (i *NodeIdentity) Collect(found chan<- prometheus.Metric) {
	found <- prometheus.MustNewConstMetric(clientTTLDesc, prometheus.GaugeValue, i.signed.ttl())
	found <- prometheus.MustNewConstMetric(clientErrorsDesc, prometheus.CounterValue, float64(i.signed.failures.Load()))
	found <- prometheus.MustNewConstMetric(clientRequestDesc, prometheus.GaugeValue, i.signed.requestAge())
}

// Config returns a new client config with the identity. It is of use once
// WaitReady has returned; clients made of it follow the renewals.
func (i *NodeIdentity) Config() *rest.Config {
	config := rest.CopyConfig(i.server)
	path := i.signed.store.CurrentPath() // it holds both
	config.CertFile, config.KeyFile = path, path
	config.Dial = i.dialer.DialContext
	return config
}

// WaitReady waits until there is a certificate, or ctx ends, which is the
// error. Run has to be running.
func (i *NodeIdentity) WaitReady(ctx context.Context) error {
	select {
	case <-i.signed.first:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("have no certificate yet (see \"kubectl get csr\"): %w", context.Cause(ctx))
	}
}

// Run requests the certificate if there is none that is valid, and renews it
// until ctx ends; then it returns nil. Failures are logged, and tried again for
// ever. It can be called once.
func (i *NodeIdentity) Run(ctx context.Context) error {
	i.signed.run(ctx)
	return nil
}

// certCaching is longer than client-go goes without a look at the file.
const certCaching = 2 * time.Second

// reconnect closes the connections that were made with the former certificate,
// since the API server will not accept them any longer than that. Client-go
// would do so by itself, but only within five minutes, and certificates of ten
// minutes exist.
func (i *NodeIdentity) reconnect(ctx context.Context) {
	timer := time.NewTimer(certCaching)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		i.dialer.CloseAll()
	}
}
