package nodeutil

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/certificate"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// signer is an API server with a signer of certificates.
type signer struct {
	*fake.Clientset
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	life time.Duration

	mu       sync.Mutex
	requests []*x509.CertificateRequest
	specs    []certificatesv1.CertificateSigningRequestSpec
	name     string // of the last request
	hold     bool   // leave requests pending
	deny     bool
	bare     bool // sign without names and addresses
	vanish   bool // the next request is deleted at once
	refuse   error
	before   func() // each request
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now(), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{Clientset: fake.NewSimpleClientset(), t: t, key: key, life: time.Hour}
	if s.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	fakeapi.React(&s.Fake, "create", "certificatesigningrequests", s.create)
	return s
}

func (s *signer) create(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		s.before()
	}
	if s.refuse != nil {
		return true, nil, s.refuse
	}
	csr := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest).DeepCopy()
	if csr.Name == s.name {
		return true, nil, apierrors.NewAlreadyExists(certificatesv1.Resource("certificatesigningrequests"), s.name)
	}
	block, _ := pem.Decode(csr.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		s.t.Error(err)
		return true, nil, err
	}
	s.requests, s.specs = append(s.requests, request), append(s.specs, csr.Spec)
	csr.UID = types.UID(csr.Name)
	switch {
	case s.deny:
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: "NotYours", Status: corev1.ConditionTrue}}
	case !s.hold:
		s.sign(csr, request)
	}
	// The fake has no field selectors: there must be no other request.
	resource := certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
	if s.name != "" {
		_ = s.Tracker().Delete(resource, "", s.name)
	}
	s.name = csr.Name
	if s.vanish {
		s.vanish = false
		return true, csr, nil
	}
	return true, csr, s.Tracker().Add(csr)
}

func (s *signer) sign(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) {
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
	names, ips := request.DNSNames, request.IPAddresses
	if s.bare {
		names, ips = nil, nil
	}
	csr.Status.Certificate = s.certificate(request.PublicKey, request.Subject, names, ips, time.Now(), time.Now().Add(s.life))
}

func (s *signer) certificate(key any, subject pkix.Name, names []string, ips []net.IP, from, to time.Time) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(from.Unix()), Subject: subject, DNSNames: names, IPAddresses: ips, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key, s.key)
	if err != nil {
		s.t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// approve signs the pending request.
func (s *signer) approve() {
	s.mu.Lock()
	request, name := s.requests[len(s.requests)-1], s.name
	s.mu.Unlock()
	csr, err := s.CertificatesV1().CertificateSigningRequests().Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.sign(csr, request)
	if _, err := s.CertificatesV1().CertificateSigningRequests().UpdateApproval(s.t.Context(), csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *signer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *signer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// kept writes a certificate into dir, as a former process has left it.
func (s *signer) kept(dir, prefix, user string, from, to time.Time) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	content := append(s.certificate(key.Public(), pkix.Name{CommonName: user, Organization: []string{"system:nodes"}}, nil, nil, from, to),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
	path := filepath.Join(dir, prefix+"-0.pem")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(dir, prefix+"-current.pem")); err != nil {
		s.t.Fatal(err)
	}
}

// keeper is a signedCert of the node vk, for a serving certificate.
type keeper struct {
	*signedCert
	mu           sync.Mutex
	addresses    []corev1.NodeAddress
	clients      []bool // whether there was a valid certificate when one was asked for
	replacements int
}

func (k *keeper) moveTo(addresses ...corev1.NodeAddress) {
	k.mu.Lock()
	k.addresses = addresses
	k.mu.Unlock()
	k.reconsider()
}

func newKeeper(s *signer, addresses ...corev1.NodeAddress) *keeper {
	k := &keeper{addresses: addresses}
	k.signedCert = &signedCert{
		signer: certificatesv1.KubeletServingSignerName,
		usages: certificate.DefaultKubeletServingGetUsages,
		wanted: func() *x509.CertificateRequest {
			k.mu.Lock()
			defer k.mu.Unlock()
			return servingRequest("vk", k.addresses)
		},
		client: func(current *tls.Certificate) (kubernetes.Interface, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.clients = append(k.clients, current != nil)
			return s, nil
		},
		replaced: func(context.Context) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.replacements++
		},
	}
	return k
}

// seen returns what the fields clients and replacements are.
func (k *keeper) seen() (clients []bool, replacements int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.clients), k.replacements
}

// launch runs the keeper until the end of the test, or until the function that it returns is called.
func (k *keeper) launch(t *testing.T, dir string) (stop func()) {
	t.Helper()
	if err := k.open(t.Context(), dir, "kubelet-server", "system:node:vk"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { k.run(ctx); close(ended) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	synctest.Wait()
	return stop
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var here = corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}

func TestCertificateIsRequestedAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newSigner(t), t.TempDir()
		k := newKeeper(s, here, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "vk.example.org"}, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"})
		k.launch(t, dir)
		first := k.current()
		if first == nil {
			t.Fatal("there is no certificate")
		}
		s.mu.Lock()
		request, spec := s.requests[0], s.specs[0]
		s.mu.Unlock()
		if request.Subject.CommonName != "system:node:vk" || !slices.Equal(request.Subject.Organization, []string{"system:nodes"}) ||
			!slices.Equal(request.DNSNames, []string{"vk.example.org"}) || len(request.IPAddresses) != 1 || request.IPAddresses[0].String() != "192.0.2.1" {
			t.Errorf("requested %v %v %v", request.Subject, request.DNSNames, request.IPAddresses)
		}
		if spec.SignerName != "kubernetes.io/kubelet-serving" || !slices.Equal(spec.Usages, []certificatesv1.KeyUsage{"digital signature", "server auth"}) {
			t.Errorf("requested of %s for %v", spec.SignerName, spec.Usages)
		}

		pass(40 * time.Minute) // less than 70 % of an hour
		if s.count() != 1 || k.current() != first {
			t.Errorf("%d requests in the first two thirds of the certificate's life", s.count())
		}
		pass(15 * time.Minute) // more than 90 %
		if _, replacements := k.seen(); s.count() != 2 || k.current() == first || replacements != 1 {
			t.Errorf("%d requests, replaced %d times; want a second certificate before the first one expires", s.count(), replacements)
		}

		// The next process goes on with it, and renews it in time.
		again := newKeeper(s, here)
		again.launch(t, dir)
		if again.current() == nil || s.count() != 2 {
			t.Errorf("%d requests; a certificate that is valid was not used", s.count())
		}
	})
}

func TestExpiredCertificateIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newSigner(t), t.TempDir()
		s.kept(dir, "kubelet-server", "system:node:vk", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Second))
		k := newKeeper(s, here)
		k.launch(t, dir)
		if clients, _ := k.seen(); k.current() == nil || !slices.Equal(clients, []bool{false}) {
			t.Errorf("certificate %v, asked for clients with certificates %v; want one that was asked for without", k.current(), clients)
		}
		// While the API server is away it expires under way.
		s.set(func() { s.refuse = apierrors.NewServiceUnavailable("away") })
		pass(61 * time.Minute)
		if k.current() != nil {
			t.Error("an expired certificate is served")
		}
		s.set(func() { s.refuse = nil })
		pass(2 * time.Minute)
		if clients, replacements := k.seen(); k.current() == nil || clients[len(clients)-1] || replacements != 1 {
			t.Errorf("certificate %v, asked for clients with certificates %v, replaced %d times", k.current(), clients, replacements)
		}
	})
}

func TestCertificateNearItsEndIsRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newSigner(t), t.TempDir()
		s.kept(dir, "kubelet-server", "system:node:vk", time.Now().Add(-99*time.Minute), time.Now().Add(time.Minute))
		k := newKeeper(s)
		k.launch(t, dir)
		if s.count() != 0 || k.current() == nil {
			t.Errorf("%d requests without an address; certificate %v", s.count(), k.current())
		}
		k.moveTo(here)
		synctest.Wait()
		if clients, _ := k.seen(); s.count() != 1 || !slices.Equal(clients, []bool{true}) {
			t.Errorf("%d requests, by clients with certificates %v; want one with", s.count(), clients)
		}
	})
}

func TestCertificateFollowsTheAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.hold = true
		k := newKeeper(s)
		k.launch(t, t.TempDir())
		if s.count() != 0 {
			t.Error("a certificate without addresses was requested")
		}
		k.moveTo(here)
		synctest.Wait()
		k.moveTo(here)
		pass(time.Minute)
		if s.count() != 1 {
			t.Errorf("%d requests for one address", s.count())
		}
		// The pending request is no use any more.
		there := corev1.NodeAddress{Address: "192.0.2.2"}
		k.moveTo(there)
		synctest.Wait()
		if s.count() != 2 {
			t.Fatalf("%d requests, want another one for the new address", s.count())
		}
		s.approve()
		synctest.Wait()
		if pair := k.current(); pair == nil || pair.Leaf.IPAddresses[0].String() != "192.0.2.2" {
			t.Fatalf("got %v", pair)
		}
		k.moveTo(there, here)
		synctest.Wait()
		if s.count() != 3 {
			t.Errorf("%d requests, want one for both addresses", s.count())
		}
		if k.current() == nil {
			t.Error("the former certificate is not served until then")
		}
	})
}

// A request that waits for somebody to approve it is found again by the next process, and
// by a look at the metrics.
func TestPendingRequestOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newSigner(t), t.TempDir()
		s.hold = true
		for range 3 {
			k := newKeeper(s, here)
			stop := k.launch(t, dir)
			pass(10 * time.Minute)
			if age := k.requestAge(); age != 600 || s.count() != 1 {
				t.Errorf("%d requests, %v s of waiting; want one, and 600 s", s.count(), age)
			}
			stop()
		}
		s.approve() // while there is no process
		k := newKeeper(s, here)
		k.launch(t, dir)
		if k.current() == nil || k.requestAge() != 0 {
			t.Errorf("certificate %v after %v s of waiting; want the one that was approved", k.current(), k.requestAge())
		}
		first := k.current().PrivateKey.(*ecdsa.PrivateKey)
		s.set(func() { s.hold = false })
		pass(time.Hour)
		if again := k.current(); again == nil || first.Equal(again.PrivateKey) {
			t.Error("there is no new certificate, or it has the key of the one before")
		}
	})
}

// An API server that is away while the process is restarted does not have it leave another
// request: somebody may approve the one that waits.
func TestPendingRequestOutlivesAnAPIServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newSigner(t), t.TempDir()
		s.hold = true
		newKeeper(s, here).launch(t, dir)()
		s.set(func() { s.refuse = errors.New("connection refused") })
		k := newKeeper(s, here)
		k.launch(t, dir)
		pass(10 * time.Minute)
		s.set(func() { s.refuse = nil })
		pass(2 * time.Minute)
		if s.count() != 1 {
			t.Errorf("%d requests", s.count())
		}
		s.approve()
		pass(2 * time.Minute)
		if k.current() == nil {
			t.Error("the approved request has come to nothing")
		}
	})
}

// A provider that lists the addresses of its node in another order each time leaves one request.
func TestRequestDoesNotDependOnTheOrderOfAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newSigner(t), t.TempDir()
		s.hold = true
		there, name := corev1.NodeAddress{Address: "192.0.2.2"}, corev1.NodeAddress{Address: "vk.example.org"}
		other := corev1.NodeAddress{Address: "a.example.org"}
		for _, addresses := range [][]corev1.NodeAddress{{here, there, name, other}, {other, there, name, here}} {
			k := newKeeper(s, addresses...)
			stop := k.launch(t, dir)
			slices.Reverse(addresses)
			k.moveTo(addresses...)
			pass(time.Minute)
			stop()
		}
		if s.count() != 1 {
			t.Errorf("%d requests", s.count())
		}
	})
}

// A request that somebody deletes before it is watched is made again.
func TestRequestThatIsDeletedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.vanish = true
		k := newKeeper(s, here)
		k.launch(t, t.TempDir())
		pass(2 * time.Minute)
		if k.current() == nil {
			t.Errorf("there is no certificate after %d requests", s.count())
		}
	})
}

// What is left of the file of a key may be of a machine that died.
func TestPendingKeyThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newSigner(t), t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "kubelet-server-pending.key"), []byte("-----BEGIN"), 0o600); err != nil {
			t.Fatal(err)
		}
		k := newKeeper(s, here)
		k.launch(t, dir)
		if k.current() == nil {
			t.Error("there is no certificate")
		}
	})
}

// What has the name of the request, and cannot be used, does not keep one from being made for
// ever.
func TestRequestThatCannotBeUsed(t *testing.T) {
	for name, change := range map[string]func(*signer, *certificatesv1.CertificateSigningRequest){
		"no request": func(_ *signer, csr *certificatesv1.CertificateSigningRequest) { csr.Spec.Request = []byte("rubbish") },
		"of another key": func(s *signer, csr *certificatesv1.CertificateSigningRequest) {
			der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: nodeUser("vk")}, s.key)
			if err != nil {
				t.Fatal(err)
			}
			csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		},
		"has expired": func(s *signer, csr *certificatesv1.CertificateSigningRequest) {
			s.sign(csr, s.requests[0])
			pass(s.life + time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dir := newSigner(t), t.TempDir()
				s.hold = true
				stop := newKeeper(s, here).launch(t, dir)
				stop()
				csr, err := s.CertificatesV1().CertificateSigningRequests().Get(t.Context(), s.name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				change(s, csr)
				if _, err := s.CertificatesV1().CertificateSigningRequests().Update(t.Context(), csr, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				s.set(func() { s.hold = false })
				k := newKeeper(s, here)
				k.launch(t, dir)
				pass(time.Minute)
				if k.current() == nil {
					t.Error("there is no certificate")
				}
			})
		})
	}
}

func TestDeniedAndRefusedRequestsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		s.deny = true
		k := newKeeper(s, here)
		k.launch(t, t.TempDir())
		for range 3600 {
			pass(time.Second)
			k.moveTo(here) // which is no news
		}
		if n := s.count(); n < 10 || n > 100 {
			t.Errorf("%d requests in an hour of denials", n)
		}
		s.set(func() { s.deny, s.refuse = false, errors.New("no") })
		pass(10 * time.Minute)
		s.set(func() { s.refuse = nil })
		pass(2 * time.Minute)
		if k.current() == nil {
			t.Error("there is no certificate")
		}
	})
}

// A signer that does not sign what is wanted must not be flooded.
func TestSignerThatLeavesThingsOut(t *testing.T) {
	for name, change := range map[string]func(s *signer){
		"the addresses":  func(s *signer) { s.bare = true },
		"the expiration": func(s *signer) { s.life = -time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSigner(t)
				change(s)
				newKeeper(s, here).launch(t, t.TempDir())
				pass(10 * time.Minute)
				if n := s.count(); n < 2 || n > 20 {
					t.Errorf("%d requests in ten minutes", n)
				}
			})
		})
	}
}

func TestKeptCertificateThatCannotBeUsed(t *testing.T) {
	s := newSigner(t)
	for name, test := range map[string]struct {
		prepare func(dir string) string
		want    string
	}{
		"of another node": {func(dir string) string {
			s.kept(dir, "kubelet-server", "system:node:other", time.Now(), time.Now().Add(time.Hour))
			return dir
		}, "system:node:other"},
		"broken": {func(dir string) string {
			if err := os.WriteFile(filepath.Join(dir, "kubelet-server-current.pem"), []byte("rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "kubelet-server-current.pem"},
		"no directory": {func(dir string) string {
			file := filepath.Join(dir, "file")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}, "cannot keep certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newKeeper(s, here).open(t.Context(), test.prepare(t.TempDir()), "kubelet-server", "system:node:vk")
			if err == nil || !strings.Contains(err.Error(), test.want) || !errdefs.IsInvalidInput(err) {
				t.Errorf("got %v, want an error of class InvalidInput with %q", err, test.want)
			}
		})
	}
}
