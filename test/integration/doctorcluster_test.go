//go:build integration

package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the doctor finds at the kubelet API, and between the node and the cluster.

// applyFix runs the kubectl command of a check's fix in a shell, as an operator would.
func applyFix(t *testing.T, found diagnosis, check string) {
	t.Helper()
	for _, c := range found.Checks {
		if _, command, ok := strings.Cut(c.Fix, "kubectl "); ok && c.Check == check {
			as := cluster.Kubectl(t.Context())
			fix := exec.CommandContext(t.Context(), "sh", "-c", `kubectl() { "`+as.Path+`" kubectl "$@"; }; kubectl `+command)
			fix.Env = as.Env
			if out, err := fix.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", c.Fix, err, out)
			}
			return
		}
	}
	t.Fatalf("there is no command that fixes %s: %+v", check, found)
}

// eventuallyBad waits until the doctor finds that a check alone is bad, or that none is: more may
// be for a moment, as when a process has just begun.
func eventuallyBad(t *testing.T, check string, args ...string) (found diagnosis) {
	t.Helper()
	eventually(t, "the doctor finds "+check, func(context.Context) (bool, string) {
		found = doctor(t, nil, args...)
		bad := found.bad()
		delete(bad, "metrics-server")
		return len(bad) == 0 && check == "" || len(bad) == 1 && bad[check] != "", fmt.Sprintf("%+v", found)
	})
	return found
}

func TestDoctorFindsAConfigurationThatIsWrong(t *testing.T) {
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(`{%q: {"cores": 4}}`, n.name)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantBad(t, eventuallyBad(t, "configuration", append(asAdmin(n), "--provider-config", file)...), "configuration", "failed", "cores", "virtual-kubelet providers")
}

func TestDoctorFindsThatTheClientCACannotBeRead(t *testing.T) {
	n := startNode(t)
	kubectl(t, "-n", "kube-system", "delete", "rolebinding", accountNamespace+":"+n.name)
	found := eventuallyBad(t, "client-ca", asAdmin(n)...)
	wantBad(t, found, "client-ca", "failed", "may not read ConfigMap", "print-rbac --nodename "+n.name)
	newAccount(t, t.TempDir(), n.name)
	eventuallyBad(t, "", asAdmin(n)...)
}

func TestDoctorFindsThatMetricsServerIsNotAvailable(t *testing.T) {
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "apiservice.yaml")
	const manifest = `apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  service: {name: nobody, namespace: default}
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
`
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-f", file)
	defer kubectl(t, "delete", "-f", file)
	eventually(t, "the doctor finds it", func(context.Context) (bool, string) {
		found := doctor(t, nil, asAdmin(n)...)
		return found.bad()["metrics-server"] == "failed", fmt.Sprintf("%+v", found)
	})
	wantBad(t, doctor(t, nil, asAdmin(n)...), "metrics-server", "failed", "not available", "kubectl describe apiservice")
}

// The command that the doctor prints does help.
func TestDoctorFindsACertificateThatWaitsForApproval(t *testing.T) {
	_, bootstrap := bootstrapToken(t)
	certDir := t.TempDir()
	n := startItself(t, bootstrap, certDir, "--serving-certificate", "cluster")
	args := append(asAdmin(n), "--service-account", "")
	found := eventuallyBad(t, "certificate-request", args...)
	wantBad(t, found, "certificate-request", "failed", "waits for approval", "kubectl certificate approve csr-")
	applyFix(t, found, "certificate-request")
	eventuallyBad(t, "", args...)

	// As the node itself, by the certificate that it has.
	found = eventuallyBad(t, "", "--bootstrap-kubeconfig", bootstrap, "--cert-dir", certDir, "--client-ca-file", pki("ca.crt"), "--nodename", n.name, "--provider", "mock")
	for _, c := range found.Checks {
		if c.Check == "credentials" && !strings.Contains(c.Message, n.user) {
			t.Errorf("the doctor is not %s: %s", n.user, c.Message)
		}
	}
}

// Who may make requests can name one as a command of a shell, for any node.
func TestDoctorDoesNotTrustRequestsOfOthers(t *testing.T) {
	n := startNode(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + n.name, Organization: []string{"system:nodes"}}, DNSNames: []string{"kubernetes"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	name := "x; touch doctored; \x1b[31m$(id)"
	requests := client.CertificatesV1().CertificateSigningRequests()
	if _, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := requests.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	found := eventuallyBad(t, "certificate-request", asAdmin(n)...)
	wantBad(t, found, "certificate-request", "warning", "do not approve it", "kubectl certificate deny 'x; touch doctored;")
	for _, c := range found.Checks {
		if strings.Contains(c.Message+c.Fix, "\x1b") {
			t.Errorf("%s commands the terminal: %q, %q", c.Check, c.Message, c.Fix)
		}
	}
}

// servingFiles writes a certificate for an address, and its key.
func servingFiles(t *testing.T, address net.IP, until time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-240 * time.Hour), NotAfter: until, IPAddresses: []net.IP{address}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: certificate}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// addressOf returns the address of a node.
func addressOf(t *testing.T, n *virtualNode) net.IP {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return net.ParseIP(node.Status.Addresses[0].Address)
}

func TestDoctorFindsAServingCertificateThatIsWrong(t *testing.T) {
	n := startNode(t)
	address, now := addressOf(t, n), time.Now()
	for _, c := range []struct {
		name            string
		address         net.IP
		until           time.Time
		status, message string
	}{
		{"expired", address, now.Add(-time.Hour), "failed", "it has expired"},
		{"of another address", net.IPv4(198, 51, 100, 1), now.Add(200 * time.Hour), "failed", "198.51.100.1"},
		{"of the future", address, now.Add(300 * time.Hour), "failed", "not valid before"},
		{"about to expire", address, now.Add(24 * time.Hour), "warning", "expires soon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			certFile, keyFile := servingFiles(t, c.address, c.until)
			n.stop(t, syscall.SIGTERM)
			n.args = []string{"--tls-cert-file", certFile, "--tls-private-key-file", keyFile}
			n.start(t)
			wantBad(t, eventuallyBad(t, "certificate", asAdmin(n)...), "certificate", c.status, c.message, "--tls-cert-file")
		})
	}
}

// The node does not listen at the address that it reports.
func TestDoctorFindsAnAddressThatCannotBeReached(t *testing.T) {
	n := startNode(t)
	address := addressOf(t, n).String()
	n.stop(t, syscall.SIGTERM)
	n.env, n.args = []string{"VKUBELET_POD_IP=" + address}, []string{"--listen-address", "127.0.0.1"}
	n.start(t)
	wantBad(t, eventuallyBad(t, "address", asAdmin(n)...), "address", "failed", address, "VKUBELET_POD_IP")
}

// A pod that asks for the node and does not tolerate its taint, until the command that the
// doctor prints has run.
func TestDoctorFindsAPodThatTheTaintKeepsOut(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	spec := podSpec(n)
	spec.Tolerations = nil
	createPod(t, ns, "kept-out", spec, nil)
	spec.NodeSelector = map[string]string{corev1.LabelHostname: "elsewhere"}
	createPod(t, ns, "elsewhere", spec, nil)
	found := eventuallyBad(t, "pods", asAdmin(n)...)
	wantBad(t, found, "pods", "warning", "keeps out pods that ask for this node: "+ns+"/kept-out", "kubectl -n "+ns+" patch pod kept-out")
	applyFix(t, found, "pods")
	waitForPhase(t, ns, "kept-out", corev1.PodRunning)
	eventuallyBad(t, "", asAdmin(n)...)
}
