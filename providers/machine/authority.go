package machine

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
)

const (
	authorityLifetime = 20 * 365 * 24 * time.Hour
	nodeLifetime      = 365 * 24 * time.Hour
	// backdate is by how much a clock may be behind that of the node when it made its authority: the
	// node's own, which was ahead and is set later, or that of a machine. All certificates are valid
	// from then on, which costs nothing: there was no key to misuse before.
	backdate = 365 * 24 * time.Hour
)

// authority signs the certificates of a node and of its machines. Its key is in a file, and
// nowhere else: who has it runs pods in these machines. It is safe for concurrent use.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer

	renewing sync.Mutex
}

// The files of an authority.
const (
	authorityFile, authorityKeyFile = "ca.crt", "ca.key"
	nodeFile, nodeKeyFile           = "node.crt", "node.key"
)

// openAuthority returns the authority of a directory, which it makes if there is none.
func openAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	pair, err := tls.LoadX509KeyPair(a.path(authorityFile), a.path(authorityKeyFile))
	switch _, noKey := os.Stat(a.path(authorityKeyFile)); {
	case errors.Is(noKey, fs.ErrNotExist):
		if pair, err = a.make(); err != nil {
			return nil, fmt.Errorf("make the node's certificate authority: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("the node's certificate authority cannot be read; without it no machine that runs can be reached: %w", err)
	}
	a.cert = pair.Leaf
	a.key = pair.PrivateKey.(crypto.Signer)
	return a, a.renewNode()
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) make() (tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "machines of a virtual kubelet"},
		NotBefore:             time.Now().Add(-backdate),
		NotAfter:              time.Now().Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	return a.writePair(template, nil, authorityFile, authorityKeyFile)
}

// renewNode makes the certificate that the node shows machines, unless there is one that is
// valid for long.
func (a *authority) renewNode() error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	pair, err := tls.LoadX509KeyPair(a.path(nodeFile), a.path(nodeKeyFile))
	if err == nil && !pair.Leaf.NotBefore.After(a.cert.NotBefore) && time.Until(pair.Leaf.NotAfter) > nodeLifetime/2 && pair.Leaf.CheckSignatureFrom(a.cert) == nil {
		return nil
	}
	_, err = a.writePair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: agent.NodeName},
		DNSNames:    []string{agent.NodeName},
		NotBefore:   a.cert.NotBefore,
		NotAfter:    time.Now().Add(nodeLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a, nodeFile, nodeKeyFile)
	return err
}

// writePair makes a key and its certificate, signed by itself without an issuer, and writes them
// to files: the key last, and only if its certificate is there, so that it never is without that at the
// next start.
func (a *authority) writePair(template *x509.Certificate, issuer *authority, certFile, keyFile string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	parent, signer := template, crypto.Signer(key)
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	certPEM, err := sign(template, parent, key.Public(), signer)
	if err != nil {
		return tls.Certificate{}, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
	if err := writeFile(a.path(certFile), certPEM); err != nil {
		return tls.Certificate{}, err
	}
	if err := writeFile(a.path(keyFile), keyPEM); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

func sign(template, parent *x509.Certificate, public any, signer crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// signMachine returns a certificate for a machine and for nothing else: with it nobody is a
// client of another machine, nor the node.
func (a *authority) signMachine(name string, public any, lifetime time.Duration) ([]byte, error) {
	return sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{agent.ServerName(name)},
		NotBefore:   a.cert.NotBefore,
		NotAfter:    time.Now().Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, public, a.key)
}

// fingerprint distinguishes authorities.
func (a *authority) fingerprint() string {
	sum := sha256.Sum256(a.cert.Raw)
	return hex.EncodeToString(sum[:16])
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// server is the configuration of TLS of the node as a server, which machines without a
// certificate reach.
func (a *authority) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.path(nodeFile), a.path(nodeKeyFile))
			return &pair, err
		},
	}
}

// unfinished is what the names of files begin with that are not complete.
const unfinished = ".new-"

// writeFile replaces a file, which nobody else may read, and sees to it that it lasts.
func writeFile(path string, data []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err = os.Rename(file.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync() // else a crash of this machine may undo the renaming
}
