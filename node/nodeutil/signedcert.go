package nodeutil

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// signingPatience is how long a request may wait for somebody to approve it,
// before another one is made.
const signingPatience = time.Hour

// requestCheckInterval is how often a request that waits is looked up. A watch shows its
// deletion, unless that was before the watch began.
const requestCheckInterval = time.Minute

var (
	errNothingWanted = errors.New("there is nothing to request")
	errOutdated      = errors.New("something else is wanted than what was requested")
)

// signedCert is a certificate that the cluster signs, kept in a directory: it is
// requested where there is none that is valid for what is wanted, and again
// before it expires. It does what certificate.Manager of client-go does, on the
// same store and requests, but ends with its context, rather than sleep on
// until the next rotation, and does not poll for changes of what is wanted.
type signedCert struct {
	signer string
	usages func(key any) []certificatesv1.KeyUsage
	store  certificate.FileStore
	// wanted is the request to make; nil if there is nothing to request yet.
	wanted func() *x509.CertificateRequest
	// client makes the requests. It is given the certificate if that is valid.
	client func(current *tls.Certificate) (kubernetes.Interface, error)
	// replaced is called when another certificate has taken the place of one that
	// was in use. It may be nil.
	replaced func(context.Context)

	pending  string                    // file of the key of a request that was not answered
	asked    atomic.Pointer[time.Time] // when what is pending was first requested; nil if nothing is
	pair     atomic.Pointer[tls.Certificate]
	failures atomic.Int64 // to have it signed

	first chan struct{} // closed when there is a certificate
	woken chan struct{} // something else may be wanted

	mu         sync.Mutex
	considered *x509.CertificateRequest // what was wanted at the last look
	cancel     context.CancelCauseFunc  // of the pending request; may be nil
}

// open finds what a former process has kept in dir, as PREFIX-current.pem. One
// that has expired is not used. One of another user is an error: two nodes that
// shared the directory would take each other's in turn.
func (s *signedCert) open(ctx context.Context, dir, prefix, user string) error {
	s.first, s.woken = make(chan struct{}), make(chan struct{}, 1)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errdefs.AsInvalidInput(fmt.Errorf("cannot keep certificates in %q: %w", dir, err))
	}
	store, err := certificate.NewFileStoreWithLogger(klog.FromContext(ctx).V(4), prefix, dir, dir, "", "")
	if err != nil {
		return errdefs.AsInvalidInput(fmt.Errorf("cannot keep certificates in %q: %w", dir, err))
	}
	s.store, s.pending = store, filepath.Join(dir, prefix+"-pending.key")
	pair, err := store.Current()
	if missing := (*certificate.NoCertKeyError)(nil); errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return errdefs.AsInvalidInput(fmt.Errorf("cannot use the certificate that was kept (remove the file to have another one signed): %w", err))
	}
	if name := pair.Leaf.Subject.CommonName; name != user {
		return errdefs.InvalidInputf("the certificate in %s is that of %s, not of %s: keep those of each node in a directory of its own", store.CurrentPath(), name, user)
	}
	logger := log.G(ctx).WithFields(log.Fields{"file": store.CurrentPath(), "expires": pair.Leaf.NotAfter.Format(time.RFC3339)})
	if !time.Now().Before(pair.Leaf.NotAfter) {
		logger.Warn("The certificate that was kept has expired; another one will be requested")
		return nil
	}
	logger.Info("Using the certificate that was kept")
	s.set(pair)
	return nil
}

func (s *signedCert) set(pair *tls.Certificate) {
	if s.pair.Swap(pair) == nil {
		close(s.first)
	}
}

// current returns the certificate, or nil while there is none or it has expired.
func (s *signedCert) current() *tls.Certificate {
	pair := s.pair.Load()
	if pair == nil || !time.Now().Before(pair.Leaf.NotAfter) {
		return nil
	}
	return pair
}

// ttl is the rest of the certificate's life in seconds: negative once it is over,
// and infinite while there is none.
func (s *signedCert) ttl() float64 {
	pair := s.pair.Load()
	if pair == nil {
		return math.Inf(1)
	}
	return time.Until(pair.Leaf.NotAfter).Seconds()
}

// requestAge is since when, in seconds, the cluster has been asked for what it has not
// signed yet; 0 where it has, or nothing is wanted.
func (s *signedCert) requestAge() float64 {
	asked := s.asked.Load()
	if asked == nil {
		return 0
	}
	return time.Since(*asked).Seconds()
}

// reconsider wakes the worker if what is wanted has changed.
func (s *signedCert) reconsider() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sameRequest(s.considered, s.wanted()) {
		return
	}
	if s.cancel != nil {
		s.cancel(errOutdated)
	}
	select {
	case s.woken <- struct{}{}:
	default: // the worker is about to wake anyway
	}
}

// run has the certificate signed, and renewed, until ctx ends. Failures are
// logged, and tried again for ever.
func (s *signedCert) run(ctx context.Context) {
	fresh := periodic.Backoff(time.Minute)
	fresh.Duration = time.Second // each attempt may leave an object in the API
	backoff := fresh
	due := s.due()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-s.woken:
			due = s.due()
			continue
		case <-timer.C:
		}
		inUse := s.pair.Load()
		err := s.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			backoff, due = fresh, s.due()
			if inUse != nil && s.replaced != nil {
				s.replaced(ctx)
			}
		case errors.Is(err, errOutdated):
			backoff, due = fresh, s.due()
		case errors.Is(err, errNothingWanted):
			due = time.Now().Add(signingPatience) // or when it is woken
		default:
			s.failures.Add(1)
			delay := backoff.Step()
			due = time.Now().Add(delay)
			log.G(ctx).WithError(err).WithFields(log.Fields{"signer": s.signer, "delay": delay.Round(time.Millisecond).String()}).
				Warn("Have no certificate signed yet; will try again")
		}
	}
}

// due is when the certificate has to be requested: at once where there is none
// for what is wanted, else when 70 to 90 % of its life are over. That is spread,
// since many nodes may have been started together.
func (s *signedCert) due() time.Time {
	pair := s.current()
	if pair == nil || !satisfies(pair.Leaf, s.consider(nil)) {
		return time.Now()
	}
	life := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)
	return pair.Leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*mathrand.Float64())))
}

// renew requests what is wanted, unless that changes meanwhile.
func (s *signedCert) renew(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request := s.consider(cancel)
	defer s.settle()
	if request == nil {
		s.asked.Store(nil)
		return errNothingWanted
	}
	err := s.request(ctx, request)
	if errors.Is(context.Cause(ctx), errOutdated) {
		return errOutdated
	}
	return err
}

// request has a certificate signed, and keeps it.
func (s *signedCert) request(ctx context.Context, request *x509.CertificateRequest) (err error) {
	ctx, cancel := context.WithTimeout(ctx, signingPatience)
	defer cancel()
	key, err := openRequestKey(s.pending)
	if err != nil {
		return err
	}
	answered := false
	defer func() {
		if answered {
			err = errors.Join(err, key.forget())
		}
	}()
	requestPEM, err := cert.MakeCSRFromTemplate(key.PrivateKey, request)
	if err != nil {
		return fmt.Errorf("cannot make a certificate signing request: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key.PrivateKey)
	if err != nil {
		return fmt.Errorf("cannot encode a key: %w", err)
	}
	client, err := s.client(s.current())
	if err != nil {
		return err
	}
	wanted, err := key.requestName(s.signer, request)
	if err != nil {
		return err
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, requestPEM, wanted, s.signer, nil, s.usages(key.PrivateKey), key.PrivateKey)
	if err != nil {
		// An API server that is away says nothing about a request of a former process.
		found, unknown := client.CertificatesV1().CertificateSigningRequests().Get(ctx, wanted, metav1.GetOptions{})
		answered = unknown == nil && !key.mayUse(found)
		return err
	}
	if s.asked.Load() == nil {
		s.asked.Store(ptr.To(time.Now()))
	}
	logger := log.G(ctx).WithFields(log.Fields{"csr": name, "signer": s.signer})
	logger.Info("Requested a certificate; waiting until it is approved and signed")
	certPEM, err := waitForCertificate(ctx, client, name, uid)
	answered = err == nil || ctx.Err() == nil
	if err != nil {
		return fmt.Errorf("certificate signing request %s: %w", name, err)
	}
	s.asked.Store(nil)
	pair, err := s.store.Update(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("cannot keep a new certificate: %w", err)
	}
	logger.WithField("expires", pair.Leaf.NotAfter.Format(time.RFC3339)).Info("Got a certificate")
	s.set(pair)
	// Which must not be requested again without a pause.
	switch {
	case s.current() == nil:
		return fmt.Errorf("the certificate that was signed for %s has expired already: compare the clocks", name)
	case !satisfies(pair.Leaf, request):
		return fmt.Errorf("the certificate that was signed for %s is not for all that was requested: see what its signer leaves out", name)
	}
	return nil
}

// waitForCertificate waits until a request is signed. It returns an error if the request is
// denied or gone.
func waitForCertificate(ctx context.Context, client kubernetes.Interface, name string, uid types.UID) ([]byte, error) {
	for {
		round, cancel := context.WithTimeout(ctx, requestCheckInterval)
		certPEM, err := csr.WaitForCertificate(round, client, name, uid)
		over := round.Err() == nil || ctx.Err() != nil
		cancel()
		if err == nil || over {
			return certPEM, err
		}
		if _, err := client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil, errors.New("it was deleted")
		}
	}
}

// consider returns what is wanted, and records it; cancel ends the request for it.
func (s *signedCert) consider(cancel context.CancelCauseFunc) *x509.CertificateRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.considered, s.cancel = s.wanted(), cancel
	return s.considered
}

// settle records that nothing is being requested. What is wanted may have changed
// since it was considered: that is for reconsider to see.
func (s *signedCert) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = nil
}

// nodeUser is the user that a node is to the API server.
func nodeUser(nodeName string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}}
}

// satisfies reports whether the certificate is valid for all that is wanted.
func satisfies(leaf *x509.Certificate, wanted *x509.CertificateRequest) bool {
	if wanted == nil {
		return true
	}
	for _, name := range wanted.DNSNames {
		if !slices.Contains(leaf.DNSNames, name) {
			return false
		}
	}
	for _, ip := range wanted.IPAddresses {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			return false
		}
	}
	return leaf.Subject.CommonName == wanted.Subject.CommonName
}

func sameRequest(a, b *x509.CertificateRequest) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.DNSNames, b.DNSNames) && slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}
