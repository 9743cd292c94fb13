package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config says where the provider is.
type Config struct {
	// Address is unix:///PATH, or HOST:PORT.
	Address string `json:"address"`
	// TLS is required for an address that is no unix socket.
	TLS *TLS `json:"tls,omitempty"`
	// StartTimeout is for how long New waits for the provider to answer; by default a
	// minute.
	StartTimeout metav1.Duration `json:"startTimeout,omitempty"`
	// CallTimeout is the most that a call may take which is no stream and creates or
	// changes no pod, such as one page of statistics or the list of all pods; by default a
	// minute.
	CallTimeout metav1.Duration `json:"callTimeout,omitempty"`
	// ClusterUID is the UID of the namespace kube-system of the pods' cluster, which calls name:
	// a provider of one node refuses a node of another cluster with the same name. New reads it
	// if it is empty. It goes without if there is no client, or no right to read it, and fails if the API
	// server does not answer.
	ClusterUID types.UID `json:"-"`
}

// TLS are files in PEM, which are read for each connection, so that they can be replaced.
type TLS struct {
	// CAFile has the authorities that sign the provider's certificate.
	CAFile string `json:"caFile"`
	// CertFile and KeyFile are what the virtual kubelet shows the provider.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// ServerName is the name in the provider's certificate; by default the host of the
	// address.
	ServerName string `json:"serverName,omitempty"`
}

// ParseConfig decodes a configuration file, in YAML or JSON. It is strict: the error, of
// class InvalidInput, names all that is wrong.
func ParseConfig(data []byte) (Config, error) {
	var c Config
	if err := config.Decode(data, &c, c.Complete); err != nil {
		return Config{}, errdefs.InvalidInputf("remote config: %w", err)
	}
	if err := c.Complete(); err != nil { // an empty file is not validated
		return Config{}, errdefs.InvalidInputf("remote config: %w", err)
	}
	return c, nil
}

// Complete sets defaults, and returns an error that names all mistakes.
func (c *Config) Complete() error {
	var wrong []error
	for field, d := range map[string]*metav1.Duration{"startTimeout": &c.StartTimeout, "callTimeout": &c.CallTimeout} {
		switch {
		case d.Duration < 0:
			wrong = append(wrong, fmt.Errorf("%s: %v is negative", field, d.Duration))
		case d.Duration == 0:
			d.Duration = time.Minute
		}
	}
	path, isSocket := strings.CutPrefix(c.Address, "unix://")
	host, _, err := net.SplitHostPort(c.Address)
	switch {
	case c.Address == "":
		wrong = append(wrong, errors.New("address: it is required: unix:///PATH or HOST:PORT"))
	case isSocket && !strings.HasPrefix(path, "/"):
		wrong = append(wrong, fmt.Errorf("address: %q is no absolute path: write unix:///PATH", c.Address))
	case !isSocket && (err != nil || host == ""):
		wrong = append(wrong, fmt.Errorf("address: %q is neither unix:///PATH nor HOST:PORT", c.Address))
	case !isSocket && c.TLS == nil:
		wrong = append(wrong, errors.New("tls: it is required, with caFile, certFile and keyFile, for an address that is no unix socket: pods and Secrets travel on the connection"))
	case isSocket && c.TLS != nil:
		wrong = append(wrong, errors.New("tls: a unix socket has none: the rights of its file protect it"))
	}
	if c.TLS != nil {
		for field, value := range map[string]string{"caFile": c.TLS.CAFile, "certFile": c.TLS.CertFile, "keyFile": c.TLS.KeyFile} {
			if value == "" {
				wrong = append(wrong, fmt.Errorf("tls.%s: it is required", field))
			}
		}
	}
	return errors.Join(wrong...)
}

// credentials are those of a connection. The error is of files that cannot be used.
func (c *Config) credentials() (credentials.TransportCredentials, error) {
	if c.TLS == nil {
		return insecure.NewCredentials(), nil
	}
	if _, err := c.TLS.authorities(); err != nil {
		return nil, err
	}
	if _, err := c.TLS.pair(); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return nil, err
	}
	name := host
	if c.TLS.ServerName != "" {
		name = c.TLS.ServerName
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: name,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.TLS.pair() },
		// The authorities are read at each handshake: VerifyConnection does with them what
		// is skipped here.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			roots, err := c.TLS.authorities()
			if err != nil {
				return err
			}
			intermediates := x509.NewCertPool()
			for _, cert := range state.PeerCertificates[1:] {
				intermediates.AddCert(cert)
			}
			_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: intermediates})
			return err
		},
	}), nil
}

func (t *TLS) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls.certFile and tls.keyFile cannot be used: %w", err)
	}
	return &pair, nil
}

func (t *TLS) authorities() (*x509.CertPool, error) {
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls.caFile cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.caFile: %s has no certificate", t.CAFile)
	}
	return pool, nil
}
