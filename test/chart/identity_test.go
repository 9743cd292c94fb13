//go:build integration

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A node is itself, with a bootstrap token and then with its certificate in a kubeconfig.
func (w *world) testIdentity(t *testing.T, helm string) {
	const name = "itself" // of namespace, release and node
	admin := w.Config()
	keepKubeconfig := func(secret string, user *clientcmdapi.AuthInfo) {
		content, err := clientcmd.Write(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: admin.Host, CertificateAuthority: admin.CAFile, CertificateAuthorityData: admin.CAData}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": user},
			Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
			CurrentContext: "c",
		})
		must(t, err)
		_, err = w.client.CoreV1().Secrets(name).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret},
			Data: map[string][]byte{"kubeconfig": content}}, metav1.CreateOptions{})
		must(t, err)
	}
	_, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	_, err = w.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abc123"}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": "abc123", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
	}, metav1.CreateOptions{})
	must(t, err)
	keepKubeconfig("bootstrap", &clientcmdapi.AuthInfo{Token: "abc123.0123456789abcdef"})

	p := w.play(t, name)
	w.helm(t, helm, name, "install", name, chartDir, "--wait", "--timeout", patience.String(),
		"--set", "replicas=1,nodeIdentity.bootstrapSecretName=bootstrap,servingCertificate.fromCluster=true")
	w.awaitReady(t, name)
	createPod := func(pod string) {
		_, err := w.client.CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}, metav1.CreateOptions{})
		must(t, err)
	}
	createPod("hello")
	w.runningPods(t, name)
	if out, err := w.Kubectl(t.Context(), "-n", name, "logs", "hello").CombinedOutput(); err == nil {
		t.Errorf("kubectl logs works without a serving certificate: %s", out)
	}

	notes := commandsOf(w.helm(t, helm, name, "get", "notes", name))
	request := w.servingRequest(t, "system:node:"+name)
	if out, err := w.shell(t, t.TempDir(), scriptOf(t, notes, "doctor")); err == nil || !strings.Contains(out, "kubectl certificate approve "+request) {
		t.Errorf("the doctor does not have request %s approved: %v: %s", request, err, out)
	}
	if out, err := w.shell(t, t.TempDir(), scriptOf(t, notes, "get csr")); err != nil || !strings.Contains(out, request) {
		t.Errorf("the notes list no request %s: %v: %s", request, err, out)
	}
	w.runNotes(t, strings.ReplaceAll(notes, " CSR", " "+request), "certificate approve", 0)
	w.awaitLogs(t, name, "hello")
	w.runNotes(t, notes, "doctor", 0)

	files, err := filepath.Glob(filepath.Join(p.dir, "*-certificates/pki/kubelet-client-current.pem"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("these certificates of the client are kept: %q", files)
	}
	certificate, err := os.ReadFile(files[0])
	must(t, err)
	keepKubeconfig("itself", &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: certificate})
	w.helm(t, helm, name, "upgrade", name, chartDir, "--wait", "--timeout", patience.String(), "--set", "replicas=1,nodeIdentity.kubeconfigSecretName=itself")
	p.rolledOut(name)
	createPod("second") // the next process of mock does not know the first one
	w.awaitLogs(t, name, "second")

	out, err := w.Kubectl(t.Context(), "auth", "can-i", "get", "pods", "--as", "system:serviceaccount:"+name+":"+name).CombinedOutput()
	if err == nil {
		t.Errorf("the service account may read pods: %s", out)
	}
	w.helm(t, helm, name, "uninstall", name, "--wait", "--timeout", patience.String())
	eventually(t, "no role binding is left", func() (bool, string) {
		out, err := w.Kubectl(t.Context(), "get", "rolebindings,clusterrolebindings", "-A", "-o", "name", "-l", "app.kubernetes.io/instance="+name).CombinedOutput()
		return err == nil && len(out) == 0, string(out)
	})
}

// servingRequest waits for the request of a user for a serving certificate.
func (w *world) servingRequest(t *testing.T, user string) (name string) {
	t.Helper()
	eventually(t, user+" requests a serving certificate", func() (bool, string) {
		list, err := w.client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, request := range list.Items {
			if request.Spec.Username == user && request.Spec.SignerName == certificatesv1.KubeletServingSignerName {
				name = request.Name
			}
		}
		return name != "", fmt.Sprint(list.Items)
	})
	return name
}

// awaitLogs waits until kubectl logs prints what a pod does.
func (w *world) awaitLogs(t *testing.T, namespace, pod string) {
	t.Helper()
	eventually(t, "kubectl logs works", func() (bool, string) {
		out, err := w.Kubectl(t.Context(), "-n", namespace, "logs", pod).CombinedOutput()
		return err == nil && len(out) > 0, string(out)
	})
}
