package nodeutil

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// requestKey is the key of a request for a certificate that nobody has answered yet. It
// is kept in a file, so that a process that is restarted meanwhile finds its request,
// rather than leave another one for somebody to approve.
type requestKey struct {
	*ecdsa.PrivateKey
	file string
}

// openRequestKey returns the key in the file, or makes it. A file with something else in
// it, such as one that was being written when the machine died, is replaced.
func openRequestKey(file string) (*requestKey, error) {
	if key, err := keyutil.PrivateKeyFromFile(file); err == nil {
		if key, ok := key.(*ecdsa.PrivateKey); ok {
			return &requestKey{PrivateKey: key, file: file}, nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	content, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a key: %w", err)
	}
	if err := keyutil.WriteKey(file, content); err != nil {
		return nil, fmt.Errorf("cannot keep the key of a certificate signing request: %w", err)
	}
	return &requestKey{PrivateKey: key, file: file}, nil
}

// forget has the next request get another key.
func (k *requestKey) forget() error {
	if err := os.Remove(k.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the key of a certificate signing request: %w", err)
	}
	return nil
}

// mayUse reports whether a request is one of this key which can still come to a certificate,
// or has come to one that has not expired.
func (k *requestKey) mayUse(found *certificatesv1.CertificateSigningRequest) bool {
	block, _ := pem.Decode(found.Spec.Request)
	if block == nil {
		return false
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || !k.PublicKey.Equal(request.PublicKey) {
		return false
	}
	if len(found.Status.Certificate) == 0 {
		return true
	}
	signed, err := cert.ParseCertsPEM(found.Status.Certificate)
	return err == nil && time.Now().Before(signed[0].NotAfter)
}

// requestName is the name of the request for that signer. It cannot be known before
// the key is, so nobody can have made another one of that name.
func (k *requestKey) requestName(signer string, request *x509.CertificateRequest) (string, error) {
	public, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		return "", fmt.Errorf("cannot encode a public key: %w", err)
	}
	hash := sha256.New()
	hash.Write(public)
	fmt.Fprintf(hash, "%q %q %q %q", signer, request.Subject.CommonName, request.DNSNames, request.IPAddresses)
	return "csr-" + hex.EncodeToString(hash.Sum(nil)[:10]), nil
}
