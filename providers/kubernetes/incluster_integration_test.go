//go:build integration

package kubernetes_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
)

// inPod is the directory with the file system of a pod, as far as it is used, in the
// process that runs TestAsAPod.
const inPod = "TEST_POD_FILES"

// A provider in a pod of the remote cluster uses the pod's service account.
func (w *world) testInCluster(t *testing.T) {
	files := t.TempDir()
	token, err := w.remote.client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := w.remote.Config()
	ca := config.CAData
	if config.CAFile != "" {
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{"token": []byte(token.Status.Token), "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(files, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsAPod$", "-test.v")
	command.Env = append(os.Environ(), inPod+"="+files, "KUBERNETES_SERVICE_HOST="+server.Hostname(), "KUBERNETES_SERVICE_PORT="+server.Port())
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // its mounts are its own
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "I am system:serviceaccount:default:default") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAsAPod is no test by itself: testInCluster runs it in another process.
func TestAsAPod(t *testing.T) {
	files := os.Getenv(inPod)
	if files == "" {
		return
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	if err := os.MkdirAll(account, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(files, account, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	config, err := (&kubernetes.Remote{InCluster: true}).Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("I am", review.Status.UserInfo.Username)
}
