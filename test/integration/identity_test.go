//go:build integration

package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtual-kubelet/virtual-kubelet/internal/clusteruid"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// bootstrapToken makes a token with which nodes may join, as kubeadm does, and
// returns the name of its Secret and a kubeconfig with it.
func bootstrapToken(t *testing.T) (secret, kubeconfig string) {
	t.Helper()
	random := make([]byte, 11)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	id, key := hex.EncodeToString(random[:3]), hex.EncodeToString(random[3:])
	secret = "bootstrap-token-" + id
	_, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secret},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": id, "token-secret": key, "usage-bootstrap-authentication": "true"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteToken(t, secret) })
	kubeconfig = filepath.Join(t.TempDir(), "bootstrap")
	writeKubeconfig(t, kubeconfig, &clientcmdapi.AuthInfo{Token: id + "." + key})
	return secret, kubeconfig
}

func deleteToken(t *testing.T, secret string) {
	t.Helper()
	err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(context.Background(), secret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func pki(file string) string { return filepath.Join(cluster.Dir(), "pki", file) }

// startItself starts a node with its own identity, and waits until it is Ready.
// There is no kubeconfig but the one to bootstrap with.
func startItself(t *testing.T, bootstrap, certDir string, args ...string) *virtualNode {
	t.Helper()
	dir := t.TempDir()
	name := strings.ToLower(t.Name())
	n := &virtualNode{
		name:       name,
		user:       "system:node:" + name,
		kubeconfig: filepath.Join(dir, "none"),
		journal:    filepath.Join(dir, "journal"),
		config:     filepath.Join(dir, "mock.json"),
		args: append([]string{"--bootstrap-kubeconfig", bootstrap, "--cert-dir", certDir,
			"--client-ca-file", pki("ca.crt")}, args...),
		log: &lockedbuffer.Buffer{},
	}
	config := fmt.Sprintf(`{%q: {"cpu": "100", "memory": "100Gi", "pods": "1000", "journal": %q}}`, name, n.journal)
	if err := os.WriteFile(n.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, n.log.String())
		}
		assertExpectedRefusals(t, n)
		err := client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	n.start(t)
	return n
}

// assertExpectedRefusals fails the test if the node was refused anything but the label
// that NodeRestriction does not let it have, and to read what is not related to it
// any more, as a pod that is gone, or not yet, since the authorizer hears of a new
// pod when the node does.
func assertExpectedRefusals(t *testing.T, n *virtualNode) {
	t.Helper()
	for _, request := range requestsOf(t, n.user) {
		if request.ResponseStatus == nil || request.ResponseStatus.Code != 403 || strings.HasPrefix(request.UserAgent, doctorAgent) {
			continue
		}
		what, why := request.Verb+" "+request.ObjectRef.Resource, request.ResponseStatus.Message
		switch {
		case request.ObjectRef.Resource == "nodes" && strings.Contains(why, "kubernetes.io/role"):
		case strings.Contains(why, "no relationship found"):
		case what == "create events" && strings.Contains(why, "being terminated"): // the namespace, at the end of the test
		default:
			t.Errorf("%s may not %s %s: %s", n.user, request.Verb, request.RequestURI, why)
		}
	}
}

// keptCertificate reads a certificate of a node from its directory.
func keptCertificate(t *testing.T, dir, file string) *x509.Certificate {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		t.Fatalf("%s holds no PEM", file)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// requestedBy returns the certificate signing requests of a user to a signer.
func requestedBy(t *testing.T, user, signer string) (requests []certificatesv1.CertificateSigningRequest) {
	t.Helper()
	list, err := client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range list.Items {
		if request.Spec.Username == user && request.Spec.SignerName == signer {
			requests = append(requests, request)
		}
	}
	return requests
}

// From a token to a node that does all that nodes do, as itself.
func TestNodeJoinsWithABootstrapToken(t *testing.T) {
	secret, bootstrap := bootstrapToken(t)
	certDir := filepath.Join(t.TempDir(), "pki")
	n, ns := startItself(t, bootstrap, certDir), newNamespace(t)

	kept := keptCertificate(t, certDir, "kubelet-client-current.pem")
	if kept.Subject.CommonName != n.user || !slices.Equal(kept.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the certificate is that of %v", kept.Subject)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := node.Labels["kubernetes.io/role"]; ok || node.Labels["type"] != "virtual-kubelet" || len(node.Spec.Taints) == 0 {
		t.Errorf("labels %v, taints %v", node.Labels, node.Spec.Taints)
	}

	kubectl(t, "-n", ns, "create", "configmap", "settings", "--from-literal=COLOR=blue")
	kubectl(t, "-n", ns, "create", "secret", "generic", "keys", "--from-literal=TOKEN=abc")
	spec := podSpec(n)
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}},
	}
	pod := createPod(t, ns, "hello", spec, nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	if out := kubectl(t, "-n", ns, "logs", "hello"); !strings.Contains(out, "hello") {
		t.Errorf("kubectl logs printed %q", out)
	}
	if out := kubectl(t, "-n", ns, "exec", "hello", "--", "echo", "a", "b"); out != "a b\n" {
		t.Errorf("kubectl exec printed %q", out)
	}
	eventually(t, "kubectl describe shows the event", func(context.Context) (bool, string) {
		out := kubectl(t, "-n", ns, "describe", "pod", "hello")
		return strings.Contains(out, "ProviderCreateSuccess"), out
	})
	kubectl(t, "label", "node", n.name, "type-")
	eventually(t, "the node's label is back", func(ctx context.Context) (bool, string) {
		node, err := client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		return err == nil && node.Labels["type"] != "", fmt.Sprint(err)
	})
	kubectl(t, "-n", ns, "delete", "pod", "hello")
	waitForGone(t, pod)

	// The next process needs no token.
	deleteToken(t, secret)
	n.stop(t, syscall.SIGTERM)
	n.start(t)
	if again := keptCertificate(t, certDir, "kubelet-client-current.pem"); again.SerialNumber.Cmp(kept.SerialNumber) != 0 {
		t.Error("the certificate was not used again")
	}
	createPod(t, ns, "second", podSpec(n), nil)
	waitForPhase(t, ns, "second", corev1.PodRunning)
}

// What became of pods while the node was away is found out with its own
// identity, too: the API server does not show a node that a pod is gone, but
// that it may not read it.
func TestOrphansOfANodeWithItsOwnIdentity(t *testing.T) {
	_, bootstrap := bootstrapToken(t)
	n, ns := startItself(t, bootstrap, t.TempDir()), newNamespace(t)
	pod := createPod(t, ns, "orphan", podSpec(n), nil)
	waitForPhase(t, ns, "orphan", corev1.PodRunning)
	n.stop(t, syscall.SIGKILL)
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "orphan", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	eventually(t, "the orphan is deleted in the provider", func(context.Context) (bool, string) {
		entries := n.journalOf(t, ns)
		return slices.Contains(entries, entry{"delete", string(pod.UID)}), fmt.Sprint(entries)
	})
}

// The UID of the cluster, which most providers read, nodes may not: the doctor prints the command
// that grants it to the node alone, and the ConfigMap with the CA of client certificates.
func TestRightsOfANodeWithItsOwnIdentity(t *testing.T) {
	_, bootstrap := bootstrapToken(t)
	certDir := t.TempDir()
	n := startItself(t, bootstrap, certDir)
	settings := filepath.Join(t.TempDir(), "remote.yaml")
	if err := os.WriteFile(settings, []byte("address: unix:///run/provider.sock\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	certificate := filepath.Join(certDir, "kubelet-client-current.pem")
	config := rest.AnonymousClientConfig(cluster.Config())
	config.CertFile, config.KeyFile, config.UserAgent = certificate, certificate, doctorAgent+"test"
	asNode, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	rights := func() (status, message, fix string) {
		found := doctor(t, nil, "--bootstrap-kubeconfig", bootstrap, "--cert-dir", certDir, "--nodename", n.name, "--provider", "remote", "--provider-config", settings)
		for _, c := range found.Checks {
			if c.Check == "rights" {
				status, message, fix = c.Status, c.Message, c.Fix
			}
		}
		return status, message, fix
	}
	if uid, err := clusteruid.New(asNode.CoreV1()).UID(t.Context()); err == nil || !strings.Contains(err.Error(), "--node-identity") {
		t.Errorf("the UID of the cluster is %q, %v", uid, err)
	}
	status, message, fix := rights()
	if status != "failed" || !strings.Contains(message, "may not get namespaces kube-system (1 of 1") {
		t.Fatalf("rights: %s %s", status, message)
	}
	r := newReader(t, map[string]string{})
	r.run(t, fix)
	eventually(t, "the right is there", func(context.Context) (bool, string) {
		status, message, fix := rights()
		return status == "ok", message + fix
	})
	if _, err := clusteruid.New(asNode.CoreV1()).UID(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := asNode.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	r.run(t, strings.Replace(fix, "kubectl apply", "kubectl delete", 1))
}

// keepCertificate puts a client certificate for the node that t starts into a
// directory, where a former process has left it.
func keepCertificate(t *testing.T, dir string, from, to time.Time) *x509.Certificate {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(pki("ca.crt"), pki("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "system:node:" + strings.ToLower(t.Name()), Organization: []string{"system:nodes"}},
		NotBefore:    from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})...)
	path := filepath.Join(dir, "kubelet-client-2001-02-03-04-05-06.pem")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "kubelet-client-current.pem")); err != nil {
		t.Fatal(err)
	}
	return template
}

// A certificate that is about to expire is renewed by itself, without a token,
// and nothing notices when its time comes.
func TestClientCertificateIsRenewed(t *testing.T) {
	t.Parallel() // it waits most of the time
	bootstrap, certDir := filepath.Join(t.TempDir(), "bootstrap"), t.TempDir()
	writeKubeconfig(t, bootstrap, &clientcmdapi.AuthInfo{Token: "abcdef.0123456789abcdef"}) // which the cluster does not know
	before := keepCertificate(t, certDir, time.Now().Add(-time.Hour), time.Now().Add(time.Minute))
	n, ns := startItself(t, bootstrap, certDir), newNamespace(t)
	eventually(t, "there is another certificate", func(context.Context) (bool, string) {
		now := keptCertificate(t, certDir, "kubelet-client-current.pem")
		return now.SerialNumber.Cmp(before.SerialNumber) != 0 && now.Subject.CommonName == n.user, now.NotAfter.String()
	})
	// Also the connections that have been open all the time.
	expired := before.NotAfter.Add(time.Second)
	eventually(t, "the lease is renewed after the former certificate has expired", func(ctx context.Context) (bool, string) {
		lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return lease.Spec.RenewTime.After(expired), lease.Spec.RenewTime.String()
	})
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	kubectl(t, "-n", ns, "logs", "hello")
	if log := n.log.String(); strings.Contains(log, "Unauthorized") || strings.Contains(log, "must be logged in") {
		t.Error("the API server has seen the expired certificate")
	}
}

func TestExpiredClientCertificateIsBootstrapped(t *testing.T) {
	_, bootstrap := bootstrapToken(t)
	certDir := t.TempDir()
	before := keepCertificate(t, certDir, time.Now().Add(-time.Hour), time.Now().Add(-time.Second))
	startItself(t, bootstrap, certDir)
	if now := keptCertificate(t, certDir, "kubelet-client-current.pem"); now.SerialNumber.Cmp(before.SerialNumber) == 0 {
		t.Error("there is no other certificate")
	}
}

// A process that has credentials needs no others.
func TestKubeconfigComesBeforeBootstrapping(t *testing.T) {
	certDir := t.TempDir()
	startNode(t, "--bootstrap-kubeconfig", "/nowhere", "--cert-dir", certDir)
	if left, err := os.ReadDir(certDir); err != nil || len(left) > 0 {
		t.Errorf("the node has written %v, %v", left, err)
	}
}

// checkingServingCertificates has the test use a control plane of its own, whose
// API server talks only to nodes whose certificate the cluster has signed.
func checkingServingCertificates(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	other, err := controlplane.Start(ctx, controlplane.Options{
		Binary: filepath.Join(bin, "controlplane"),
		Dir:    dir,
		Args:   map[string][]string{"kube-apiserver": {"--kubelet-certificate-authority=" + filepath.Join(dir, "pki", "ca.crt")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all, allClient := cluster, client
	cluster = other
	t.Cleanup(func() {
		cluster, client = all, allClient
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
	})
	if client, err = kubernetes.NewForConfig(other.Config()); err != nil {
		t.Fatal(err)
	}
}

// With a serving certificate that the cluster has signed, the API server can
// check whom it talks to.
func TestServingCertificateFromTheCluster(t *testing.T) {
	checkingServingCertificates(t)
	_, bootstrap := bootstrapToken(t)
	certDir := t.TempDir()
	n, ns := startItself(t, bootstrap, certDir, "--serving-certificate", "cluster"), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning) // without a certificate

	if out, err := cluster.Kubectl(t.Context(), "-n", ns, "logs", "hello").CombinedOutput(); err == nil || !strings.Contains(string(out), "tls: internal error") {
		t.Errorf("kubectl logs without a certificate: %v\n%s", err, out)
	}
	var requests []certificatesv1.CertificateSigningRequest
	eventually(t, "the node requests a serving certificate", func(context.Context) (bool, string) {
		requests = requestedBy(t, n.user, certificatesv1.KubeletServingSignerName)
		return len(requests) > 0, ""
	})
	kubectl(t, "certificate", "approve", requests[0].Name)

	node, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(pki("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	address := net.JoinHostPort(node.Status.Addresses[0].Address, fmt.Sprint(node.Status.DaemonEndpoints.KubeletEndpoint.Port))
	presented := func() (*x509.Certificate, error) {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots})
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0], nil
	}
	var first *x509.Certificate
	eventually(t, "the certificate of the cluster is presented", func(context.Context) (bool, string) {
		first, err = presented()
		return err == nil, fmt.Sprint(err)
	})
	if first.Subject.CommonName != n.user || first.VerifyHostname(n.name) != nil {
		t.Errorf("the certificate is that of %v for %v", first.Subject, first.DNSNames)
	}
	if out := kubectl(t, "-n", ns, "logs", "hello"); !strings.Contains(out, "hello") {
		t.Errorf("kubectl logs printed %q", out)
	}

	// It is kept for the next process, which takes another port.
	n.stop(t, syscall.SIGTERM)
	n.start(t)
	eventually(t, "logs work again", func(ctx context.Context) (bool, string) {
		out, err := cluster.Kubectl(ctx, "-n", ns, "logs", "hello").CombinedOutput()
		return err == nil, string(out)
	})
	if again := requestedBy(t, n.user, certificatesv1.KubeletServingSignerName); len(again) != len(requests) {
		t.Errorf("%d requests for serving certificates after the restart, want %d", len(again), len(requests))
	}
}

// A service account that requests the serving certificate of its node needs rights for that, which
// the doctor asks for and print-rbac prints.
func TestServingCertificateOfAServiceAccount(t *testing.T) {
	n, certDir := startNode(t), t.TempDir()
	n.stop(t, syscall.SIGTERM)
	n.args = []string{"--serving-certificate", "cluster", "--cert-dir", certDir}
	rights := func() (string, string) {
		for _, c := range doctor(t, nil, append(asAdmin(n), n.args...)...).Checks {
			if c.Check == "rights" {
				return c.Status, c.Message + ", fix: " + c.Fix
			}
		}
		return "", ""
	}
	if status, text := rights(); status != "failed" || !strings.Contains(text, "create certificatesigningrequests.certificates.k8s.io") || !strings.Contains(text, " --serving-certificate cluster --service-account") {
		t.Errorf("rights: %s %s", status, text)
	}
	newAccountFor(t, t.TempDir(), n.name, n.name, "--serving-certificate", "cluster")
	eventually(t, "the rights are there", func(context.Context) (bool, string) {
		status, text := rights()
		return status == "ok", text
	})
	n.start(t)
	var requests []certificatesv1.CertificateSigningRequest
	eventually(t, "the account requests a serving certificate", func(context.Context) (bool, string) {
		requests = requestedBy(t, n.user, certificatesv1.KubeletServingSignerName)
		return len(requests) > 0, ""
	})
	kubectl(t, "certificate", "approve", requests[0].Name)
	eventually(t, "the certificate is kept", func(context.Context) (bool, string) {
		_, err := os.Stat(filepath.Join(certDir, "kubelet-server-current.pem"))
		return err == nil, fmt.Sprint(err)
	})
	if kept := keptCertificate(t, certDir, "kubelet-server-current.pem"); kept.Subject.CommonName != "system:node:"+n.name {
		t.Errorf("the certificate is that of %v", kept.Subject)
	}
}

// Requests without credentials are let in by name only, and then with no more
// rights than the cluster gives to everybody.
func TestAnonymousAuth(t *testing.T) {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "anonymous-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "anonymous-metrics"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}},
	}
	kubectl(t, "create", "clusterrole", "anonymous-metrics", "--verb=get", "--resource=nodes/metrics")
	binding, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := client.RbacV1().ClusterRoles().Delete(context.Background(), "anonymous-metrics", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	ask := func(n *virtualNode, path, token string) int {
		t.Helper()
		node, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return get(t, fmt.Sprintf("https://%s:%d%s", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port, path), token)
	}
	t.Run("off", func(t *testing.T) {
		if status := ask(startNode(t), "/metrics/resource", ""); status != 401 {
			t.Errorf("without credentials: %d, want 401", status)
		}
	})
	t.Run("on", func(t *testing.T) {
		n := startNode(t, "--anonymous-auth")
		for _, c := range []struct {
			path, token string
			want        int
		}{
			{"/metrics/resource", "", 200},
			{"/pods", "", 403},
			{"/metrics/resource", "nonsense", 401},
		} {
			if status := ask(n, c.path, c.token); status != c.want {
				t.Errorf("%s with token %q: %d, want %d", c.path, c.token, status, c.want)
			}
		}
	})
}
