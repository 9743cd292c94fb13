package nodeutil

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// WithClientCA has WebhookAuth accept client certificates that ca has signed;
// the common name is the user, the organizations are the groups. The API server
// itself comes with such a certificate.
func WithClientCA(ca dynamiccertificates.CAContentProvider) WebhookAuthOption {
	return func(cfg *WebhookAuthConfig) error {
		cfg.AuthnConfig.ClientCertificateCAContentProvider = ca
		return nil
	}
}

// WithClientCAFile is WithClientCA with the CAs in a PEM file. What is written
// to the file is in force within a second; what cannot be used is logged, and
// changes nothing. The file must be right at first, else the error is of class
// InvalidInput.
func WithClientCAFile(path string) WebhookAuthOption {
	return func(cfg *WebhookAuthConfig) error {
		ca, err := pollFiles("client CA", parseCA, path)
		if err != nil {
			return errdefs.AsInvalidInput(fmt.Errorf("cannot use client CA %q: %w", path, err))
		}
		return WithClientCA(fileCA{path, ca})(cfg)
	}
}

// WithAnonymousAuth has WebhookAuth treat requests without credentials as the user
// system:anonymous in the group system:unauthenticated, and ask the API server
// what that user may. Wrong credentials are refused nevertheless. Without this
// option everybody needs credentials.
func WithAnonymousAuth() WebhookAuthOption {
	return func(cfg *WebhookAuthConfig) error {
		cfg.AuthnConfig.Anonymous = &apiserver.AnonymousAuthConfig{Enabled: true}
		return nil
	}
}

// fileCA are the CAs in a file.
type fileCA struct {
	path string
	*polledFiles[caBundle]
}

type caBundle struct {
	pem   []byte
	roots *x509.CertPool
}

func parseCA(contents [][]byte) (caBundle, error) {
	roots, err := cert.NewPoolFromBytes(contents[0])
	return caBundle{contents[0], roots}, err
}

func (f fileCA) Name() string { return "client-ca::" + f.path }

func (f fileCA) CurrentCABundleContent() []byte { return f.current(context.Background()).pem }

// VerifyOptions are asked for with each request that brings a certificate.
func (f fileCA) VerifyOptions() (x509.VerifyOptions, bool) {
	return verifyClients(f.current(context.Background()).roots), true
}

// AddListener does nothing: the authenticator asks each time.
func (f fileCA) AddListener(dynamiccertificates.Listener) {}

// ClusterClientCA are the CAs by which the API server itself knows clients: the
// ConfigMap extension-apiserver-authentication in kube-system, which the Role
// extension-apiserver-authentication-reader there allows to read. A node's own
// identity has no right to it: see WithClientCAFile.
type ClusterClientCA struct {
	client     kubernetes.Interface
	made       time.Time
	running    atomic.Bool
	settled    chan struct{} // closed when they have been read, or cannot be for now
	first      atomic.Pointer[caBundle]
	controller atomic.Pointer[dynamiccertificates.ConfigMapCAController] // nil until it may run
}

// Where the API server publishes its client CA.
const (
	clientCANamespace = metav1.NamespaceSystem
	clientCAConfigMap = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

const (
	// clientCARetry is how often it is tried again to read what may not be read.
	clientCARetry = time.Minute
	// clientCADelay is how often it is while the API server does not answer.
	clientCADelay = 2 * time.Second
	// clientCAPatience is for how long a request waits for the CAs to be read, one that comes before
	// Run not beyond that time from the making on: longer than clientCADelay, so that one attempt
	// that fails makes no difference.
	clientCAPatience = 3 * time.Second
)

// NewClusterClientCA makes a ClusterClientCA for WithClientCA. Its Run has to be
// running for it to know the CAs.
func NewClusterClientCA(client kubernetes.Interface) (*ClusterClientCA, error) {
	if client == nil {
		return nil, errdefs.InvalidInput("the cluster's client CA cannot be read without a client: pass the one that the node uses")
	}
	return newClusterClientCA(client), nil
}

func newClusterClientCA(client kubernetes.Interface) *ClusterClientCA {
	return &ClusterClientCA{client: client, made: time.Now(), settled: make(chan struct{})}
}

// Run follows the ConfigMap until ctx ends; then it returns nil. Until it has
// been read no client certificate is accepted. It can be called once.
func (c *ClusterClientCA) Run(ctx context.Context) error {
	c.running.Store(true)
	if !c.waitUntilRead(ctx) {
		return nil
	}
	// Which has goroutines from its making on.
	controller, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", clientCANamespace, clientCAConfigMap, clientCAKey, c.client)
	if err != nil {
		return fmt.Errorf("cannot follow the cluster's client CA: %w", err)
	}
	c.controller.Store(controller)
	controller.Run(ctx, 1)
	return nil
}

// Name is for logs.
func (c *ClusterClientCA) Name() string {
	return "client-ca::" + clientCANamespace + "/" + clientCAConfigMap
}

// CurrentCABundleContent returns the CAs as PEM; nil until they are known.
func (c *ClusterClientCA) CurrentCABundleContent() []byte {
	if controller := c.controller.Load(); controller != nil {
		if content := controller.CurrentCABundleContent(); content != nil {
			return content
		}
	}
	if first := c.first.Load(); first != nil {
		return first.pem
	}
	return nil
}

// VerifyOptions returns what client certificates are checked by; false until the
// CAs are known. It is asked for with each request that brings a certificate. While Run has
// yet to find out whether the CAs can be read it waits for that, three seconds at most: a node
// may be Ready, and the API server may come, a moment before.
func (c *ClusterClientCA) VerifyOptions() (x509.VerifyOptions, bool) {
	patience := time.Until(c.made.Add(clientCAPatience))
	if c.running.Load() {
		patience = clientCAPatience
	}
	select {
	case <-c.settled:
	case <-time.After(patience):
	}
	return c.known()
}

// known is VerifyOptions without waiting.
func (c *ClusterClientCA) known() (x509.VerifyOptions, bool) {
	if controller := c.controller.Load(); controller != nil {
		if options, ok := controller.VerifyOptions(); ok {
			return options, true
		}
	}
	if first := c.first.Load(); first != nil {
		return verifyClients(first.roots), true
	}
	return x509.VerifyOptions{}, false
}

func verifyClients(roots *x509.CertPool) x509.VerifyOptions {
	return x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// AddListener does nothing: the authenticator asks each time.
func (c *ClusterClientCA) AddListener(dynamiccertificates.Listener) {}

// waitUntilRead waits until the API server lets read the ConfigMap, or has none. It says
// once what right is missing, where an informer would complain without end; of an API
// server that does not answer, the node says so. It returns false when ctx has ended.
func (c *ClusterClientCA) waitUntilRead(ctx context.Context) bool {
	settle := sync.OnceFunc(func() { close(c.settled) })
	defer settle()
	for warned := false; ; {
		err := c.readFirst(ctx)
		if ctx.Err() != nil {
			return false
		}
		delay := clientCADelay
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return true
		case apierrors.IsForbidden(err):
			settle()
			delay = clientCARetry
			if !warned {
				log.G(ctx).WithError(err).Warn("May not read the cluster's client CA, so that client certificates, the API server's too, are refused, and only bearer tokens are accepted: " +
					"give the client CA as a file, or bind the Role kube-system/extension-apiserver-authentication-reader")
			}
			warned = true
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// readFirst reads the CAs, so that they are known before there is an informer of them.
func (c *ClusterClientCA) readFirst(ctx context.Context) error {
	config, err := c.client.CoreV1().ConfigMaps(clientCANamespace).Get(ctx, clientCAConfigMap, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if found, err := parseCA([][]byte{[]byte(config.Data[clientCAKey])}); err == nil { // else the informer's controller says so
		c.first.Store(&found)
	}
	return nil
}

var (
	_ dynamiccertificates.CAContentProvider = fileCA{}
	_ dynamiccertificates.CAContentProvider = (*ClusterClientCA)(nil)
)
