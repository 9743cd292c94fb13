package doctor

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// What others write into objects and answers, whom the doctor must not believe.

// request returns a request for a serving certificate of node vk, which was made long ago.
func request(t *testing.T, name, user string, age time.Duration, addresses ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:vk", Organization: []string{"system:nodes"}}}
	for _, address := range addresses {
		if ip := net.ParseIP(address); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, address)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Username:   user,
		},
	}
}

// virtualNode is the Node vk, with a kubelet API at an address.
func virtualNode(address string, port int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{"type": "virtual-kubelet"}},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: "vk"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
		},
	}
}

const itself = "system:node:vk"

func approvedAgo(r *certificatesv1.CertificateSigningRequest, age time.Duration) *certificatesv1.CertificateSigningRequest {
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, LastUpdateTime: metav1.NewTime(time.Now().Add(-age))}}
	return r
}

// To approve is recommended only what the node itself has asked for, and for addresses
// that it has.
func TestRequestsForCertificates(t *testing.T) {
	signed := approvedAgo(request(t, "r", itself, time.Hour, "127.0.0.1"), time.Hour)
	signed.Status.Certificate = []byte("it")
	for name, c := range map[string]struct {
		requests     []*certificatesv1.CertificateSigningRequest
		status       Status
		message, fix string
	}{
		"its own":             {[]*certificatesv1.CertificateSigningRequest{request(t, "r", itself, time.Minute, "127.0.0.1", "vk")}, Failed, "for 127.0.0.1, vk, waits for approval", "kubectl certificate approve r"},
		"somebody else's":     {[]*certificatesv1.CertificateSigningRequest{request(t, "r", "mallory", time.Minute, "127.0.0.1")}, Warning, "mallory made it", "kubectl certificate deny r"},
		"and somebody else's": {[]*certificatesv1.CertificateSigningRequest{request(t, "own", itself, time.Hour, "127.0.0.1"), request(t, "later", "mallory", time.Minute, "127.0.0.1")}, Failed, "own of", "kubectl certificate approve own"},
		"of its account":      {[]*certificatesv1.CertificateSigningRequest{request(t, "r", "system:serviceaccount:a:b", time.Minute, "127.0.0.1")}, Failed, "waits for approval", "kubectl certificate approve r"},
		"another address":     {[]*certificatesv1.CertificateSigningRequest{request(t, "r", itself, time.Minute, "127.0.0.1", "kubernetes.default.svc")}, Failed, "asks for kubernetes.default.svc, which", "kubectl certificate deny r"},
		"of a process of old": {[]*certificatesv1.CertificateSigningRequest{request(t, "r", itself, 2*time.Hour, "127.0.0.1")}, Warning, "no process waits for it", "--serving-certificate=cluster"},
		"not signed":          {[]*certificatesv1.CertificateSigningRequest{approvedAgo(request(t, "r", itself, time.Hour, "127.0.0.1"), time.Hour)}, Failed, "has not signed it", "--tls-cert-file"},
		"not signed yet":      {[]*certificatesv1.CertificateSigningRequest{approvedAgo(request(t, "r", itself, time.Hour, "127.0.0.1"), time.Second)}, OK, "about to be signed", ""},
		"signed":              {[]*certificatesv1.CertificateSigningRequest{signed}, OK, "signed", ""},
		"a shell's command":   {[]*certificatesv1.CertificateSigningRequest{request(t, "a$(touch b); c 'd", itself, time.Minute, "127.0.0.1")}, Failed, "waits for approval", `kubectl certificate approve 'a$(touch b); c '\''d'`},
		"denied":              {[]*certificatesv1.CertificateSigningRequest{denied(request(t, "r", itself, time.Hour, "127.0.0.1"))}, Failed, "r was denied: no", "approve that"},
	} {
		client := fake.NewClientset()
		for _, r := range c.requests {
			if err := client.Tracker().Add(r); err != nil {
				t.Fatal(err)
			}
		}
		e := &examination{Config: Config{ServiceAccount: "a/b"}, client: client, node: Node{Name: "vk"}, object: virtualNode("127.0.0.1", 0)}
		found := checkCertificateRequest(t.Context(), e)
		if found.Status != c.status || !strings.Contains(found.Message, c.message) || !strings.Contains(found.Fix, c.fix) {
			t.Errorf("%s: %+v, want %s, %q, fix %q", name, found, c.status, c.message, c.fix)
		}
	}
}

func denied(r *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Message: "no"}}
	return r
}

// A request that waits is no failure as long as the node has a certificate.
func TestRenewalThatWaits(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	e := &examination{client: fake.NewClientset(request(t, "r", itself, time.Minute, "127.0.0.1")), node: Node{Name: "vk"}, object: virtualNode("127.0.0.1", port)}
	if found := checkCertificateRequest(t.Context(), e); found.Status != Warning || found.Fix != "kubectl certificate approve r" {
		t.Errorf("%+v", found)
	}
	if found := checkCertificate(t.Context(), e); found.Status != OK {
		t.Errorf("the certificate: %+v", found)
	}
}

// A word stays one word for a shell, and the terminal obeys nobody.
func TestTextOfOthers(t *testing.T) {
	for _, word := range []string{"plain-1.2", "", "-x", "a b", "$(id)", "`id`", "a'b", "a;b", "a|b>c", "~", "*", "a\\b", "!x", `"`} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+Word("x"+word)).Output()
		if err != nil || string(out) != "x"+word {
			t.Errorf("%q: the shell has %q, %v", word, out, err)
		}
	}
	if Word("-x") != "'-x'" || Word("") != "''" || Word("kube-system/a") != "kube-system/a" {
		t.Errorf("%s %s %s", Word("-x"), Word(""), Word("kube-system/a"))
	}
	bad := check{"a", nil, func(context.Context, *examination) Finding {
		return failed("do\x1b]0;it\a", "red \x1b[31m\u009b31m\u202eback\nsecond\tline %s", strings.Repeat("long ", 10000))
	}}
	results, _ := (&examination{}).run(t.Context(), []check{bad}, nil)
	for name, write := range map[string]func() string{
		"text": func() string { var b bytes.Buffer; _ = WriteText(&b, results); return b.String() },
		"JSON": func() string { var b bytes.Buffer; _ = WriteJSON(&b, results); return b.String() },
	} {
		text := write()
		if strings.ContainsAny(text, "\x1b\a\u009b\u202e\t") || strings.Contains(text, `\u001b`) || !strings.Contains(text, "second line") || len(text) > 2*maxText {
			t.Errorf("%s has %d bytes: %.300q", name, len(text), text)
		}
	}
}

// connect returns an examination of a server that answers as handler does.
func connect(t *testing.T, handler http.HandlerFunc) *examination {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return examine(t, &rest.Config{Host: server.URL})
}

func examine(t *testing.T, config *rest.Config) *examination {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &examination{Config: Config{Cluster: config, Source: "--kubeconfig x"}, client: client, node: Node{Name: "vk"}, object: virtualNode("192.0.2.2", 10250)}
}

// answer answers with a Status, as an API server does, or with text.
func answer(code int, reason metav1.StatusReason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if reason == "" {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(message))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":` + strconv.Itoa(code) + `,"reason":"` + string(reason) + `","message":"` + message + `"}`))
	}
}

func TestCredentials(t *testing.T) {
	const forbidden = `selfsubjectreviews.authentication.k8s.io is forbidden: User \"%\" cannot create resource`
	for name, c := range map[string]struct {
		handler      http.HandlerFunc
		status       Status
		message, fix string
	}{
		"a server before 1.28":   {answer(404, metav1.StatusReasonNotFound, "the server could not find the requested resource"), OK, "does not say whose", ""},
		"not allowed to ask":     {answer(403, metav1.StatusReasonForbidden, strings.Replace(forbidden, "%", "jane", 1)), OK, "does not say whose", ""},
		"no credentials":         {answer(403, metav1.StatusReasonForbidden, strings.Replace(forbidden, "%", "system:anonymous", 1)), Failed, "has no credentials", "identity.md"},
		"wrong ones":             {answer(401, metav1.StatusReasonUnauthorized, "Unauthorized"), Failed, "refuses the credentials", "create token"},
		"a server that is ill":   {answer(500, metav1.StatusReasonInternalError, "etcdserver: no leader"), Failed, "answers with an error: etcdserver", "readyz"},
		"a page of somebody":     {answer(502, "", "<h1>Bad Gateway</h1>"), Failed, "answers with an error", "readyz"},
		"another kind of answer": {answer(200, "", "hello"), Failed, "", "kubectl"},
	} {
		found := checkCredentials(t.Context(), connect(t, c.handler))
		if found.Status != c.status || !strings.Contains(found.Message, c.message) || !strings.Contains(found.Fix, c.fix) {
			t.Errorf("%s: %+v, want %s, %q, fix %q", name, found, c.status, c.message, c.fix)
		}
	}
}

// A request that got no certificate is no failure as long as the node has one, of another source.
func TestRequestsThatAreNotNeeded(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	for want, r := range map[string]*certificatesv1.CertificateSigningRequest{
		"was denied":        denied(request(t, "r", itself, time.Hour, "127.0.0.1")),
		"has not signed it": approvedAgo(request(t, "r", itself, time.Hour, "127.0.0.1"), time.Hour),
	} {
		e := &examination{client: fake.NewClientset(r), node: Node{Name: "vk"}, object: virtualNode("127.0.0.1", port)}
		if found := checkCertificateRequest(t.Context(), e); found.Status != Warning || !strings.Contains(found.Message, want) {
			t.Errorf("%+v, want a warning with %q", found, want)
		}
	}
}
