package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"time"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	certLifetime = 365 * 24 * time.Hour
	renewBefore  = 30 * 24 * time.Hour
	clockSkew    = 5 * time.Minute
)

// keyPair is a certificate and its key, and the files that hold them as PEM.
type keyPair struct {
	cert     *x509.Certificate
	key      crypto.Signer
	certFile string
	keyFile  string
}

// certSpec is what a certificate must say.
type certSpec struct {
	name   string // base name of the files
	user   string // common name
	groups []string
	hosts  []string // DNS names; a certificate with hosts or ips is a server's
	ips    []net.IP
}

// ensureCA reads the authority from the directory or makes a new one.
func ensureCA(l layout, name string) (*keyPair, error) {
	ca, err := loadKeyPair(l, name)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return ca, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
		NotAfter:              time.Now().Add(caLifetime),
	}
	return issue(l, name, template, nil)
}

// ensureCert reads the certificate from the directory, or issues a new one
// when there is none, or it says something else, or it ends soon.
func ensureCert(l layout, ca *keyPair, spec certSpec) (*keyPair, error) {
	pair, err := loadKeyPair(l, spec.name)
	if err == nil && spec.satisfiedBy(pair.cert, ca.cert) {
		return pair, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(spec.hosts)+len(spec.ips) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	return issue(l, spec.name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: spec.user, Organization: spec.groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
		DNSNames:    spec.hosts,
		IPAddresses: spec.ips,
		NotAfter:    time.Now().Add(certLifetime),
	}, ca)
}

func (s certSpec) satisfiedBy(cert, ca *x509.Certificate) bool {
	return cert.CheckSignatureFrom(ca) == nil &&
		time.Now().Add(renewBefore).Before(cert.NotAfter) &&
		cert.Subject.CommonName == s.user &&
		slices.Equal(cert.Subject.Organization, s.groups) &&
		slices.Equal(cert.DNSNames, s.hosts) &&
		slices.EqualFunc(cert.IPAddresses, s.ips, net.IP.Equal)
}

// issue signs the template with a new key and writes both to files. Without
// an authority the certificate signs itself.
func issue(l layout, name string, template *x509.Certificate, ca *keyPair) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.NotBefore = time.Now().Add(-clockSkew)
	parent, signer := template, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate of %s: %w", name, err)
	}
	pair := &keyPair{cert: cert, key: key, certFile: l.pki(name + ".crt"), keyFile: l.pki(name + ".key")}
	// The key goes first: without the certificate, the next start begins again.
	if err := writeKey(pair.keyFile, key); err != nil {
		return nil, err
	}
	return pair, writePEM(pair.certFile, "CERTIFICATE", der)
}

func loadKeyPair(l layout, name string) (*keyPair, error) {
	pair := &keyPair{certFile: l.pki(name + ".crt"), keyFile: l.pki(name + ".key")}
	loaded, err := tls.LoadX509KeyPair(pair.certFile, pair.keyFile)
	if err != nil {
		return nil, fmt.Errorf("load the certificate of %s (remove it to get a new one): %w", name, err)
	}
	signer, ok := loaded.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key in %s cannot sign: remove it to get a new one", pair.keyFile)
	}
	pair.cert, pair.key = loaded.Leaf, signer
	return pair, nil
}

// ensureServiceAccountKey makes the key that signs service account tokens, as
// installers do: RSA, so that every OIDC client can verify a token.
func ensureServiceAccountKey(l layout) (keyFile, publicFile string, err error) {
	keyFile, publicFile = l.pki("sa.key"), l.pki("sa.pub")
	if _, err := os.Stat(publicFile); err == nil {
		return keyFile, publicFile, nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", "", fmt.Errorf("make the service account key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "", fmt.Errorf("encode the service account key: %w", err)
	}
	if err := writeKey(keyFile, key); err != nil {
		return "", "", err
	}
	return keyFile, publicFile, writePEM(publicFile, "PUBLIC KEY", der)
}

func writeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the key for %s: %w", path, err)
	}
	return writePEM(path, "PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	var buf bytes.Buffer
	if err := pem.Encode(&buf, &pem.Block{Type: kind, Bytes: der}); err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, buf.Bytes())
}

// writeFile replaces a private file at once or not at all.
func writeFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
