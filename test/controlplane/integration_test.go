//go:build integration

package controlplane_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

const binary = "../../bin/controlplane"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a control plane that ends with the test.
func start(t *testing.T, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	opts.Binary, opts.Log = binary, t.Output()
	begin := time.Now()
	c, err := controlplane.Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v", time.Since(begin))
	t.Cleanup(func() {
		begin := time.Now()
		if err := c.Stop(); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Error(err)
		}
		t.Logf("stopped in %v", time.Since(begin))
		assertNoProcesses(t, c.Dir())
	})
	return c
}

// client returns a client with connections of its own, closed with the test.
func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTwoSideBySide(t *testing.T) {
	a, b := start(t, controlplane.Options{}), start(t, controlplane.Options{})
	if a.Config().Host == b.Config().Host {
		t.Fatalf("both are at %s", a.Config().Host)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "only-in-a"}}
	if _, err := client(t, a.Config()).CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, b.Config()).CoreV1().Namespaces().Get(t.Context(), namespace.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("got %v, want not found", err)
	}
}

func TestAuthorization(t *testing.T) {
	c := start(t, controlplane.Options{})
	ctx, admin := t.Context(), client(t, c.Config())
	for _, name := range []string{"mine", "other"} {
		if _, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("an unknown user may do nothing", func(t *testing.T) {
		_, err := client(t, as(c, "stranger")).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Fatalf("got %v, want forbidden", err)
		}
	})
	t.Run("a node may change itself alone", func(t *testing.T) {
		node := client(t, as(c, "system:node:mine", "system:nodes"))
		patch := []byte(`{"metadata":{"annotations":{"a":"b"}}}`)
		if _, err := node.CoreV1().Nodes().Patch(ctx, "mine", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		// RBAC and the node authorizer allow no more than that; the admission
		// plugin NodeRestriction keeps it from labels that isolate workloads.
		if _, err := node.CoreV1().Nodes().Patch(ctx, "other", "application/merge-patch+json", patch, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Fatalf("got %v, want forbidden", err)
		}
		label := []byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`)
		if _, err := node.CoreV1().Nodes().Patch(ctx, "mine", "application/merge-patch+json", label, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Fatalf("got %v, want forbidden", err)
		}
	})
	t.Run("the API server may use the nodes' API", func(t *testing.T) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "kube-apiserver-kubelet-client",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "nodes", Subresource: "proxy"},
		}}
		got, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil || !got.Status.Allowed {
			t.Fatalf("got %+v, %v, want allowed", got, err)
		}
	})
}

func as(c *controlplane.ControlPlane, user string, groups ...string) *rest.Config {
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return config
}

func TestKubectl(t *testing.T) {
	c := start(t, controlplane.Options{})
	out, err := c.Kubectl(t.Context(), "create", "token", "default").CombinedOutput()
	if err != nil || strings.Count(string(out), ".") != 2 {
		t.Fatalf("kubectl create token: %v: %s", err, out)
	}
	version, err := exec.Command(binary, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	out, err = c.Kubectl(t.Context(), "version").CombinedOutput()
	if err != nil || !bytes.HasPrefix(version, []byte("v1.")) || !bytes.Contains(out, append([]byte("Server Version: "), version...)) {
		t.Fatalf("kubectl version: %v: %s", err, out)
	}
}

// TestNodeCertificateIsSigned does what a node does that joins with a
// bootstrap token: no administrator approves anything.
func TestNodeCertificateIsSigned(t *testing.T) {
	c := start(t, controlplane.Options{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:new", Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	requests := client(t, as(c, "system:bootstrap:abcdef", "system:bootstrappers")).CertificatesV1().CertificateSigningRequests()
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "new"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if _, err := requests.Create(t.Context(), request, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the certificate is there", func() bool {
		got, err := requests.Get(t.Context(), request.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Status.Certificate) > 0
	})
}

func TestAPIServerOutage(t *testing.T) {
	c := start(t, controlplane.Options{})
	ctx, admin := t.Context(), client(t, c.Config())
	if _, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	get := func() error {
		_, err := admin.CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{})
		return err
	}
	steps := []struct {
		name string
		do   func(context.Context) error
		up   bool
	}{
		{"restart", c.RestartAPIServer, true},
		{"stop", c.StopAPIServer, false},
		{"stop again", c.StopAPIServer, false},
		{"start", c.StartAPIServer, true},
		{"start again", c.StartAPIServer, true},
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if err := get(); (err == nil) != step.up {
			t.Fatalf("after %s: %v", step.name, err)
		}
	}
}

func TestDirIsKept(t *testing.T) {
	// A long name: Unix sockets have short ones.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	first := start(t, controlplane.Options{Dir: dir})
	if _, err := client(t, first.Config()).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, controlplane.Options{Dir: dir})
	if first.Config().Host != second.Config().Host {
		t.Fatalf("was at %s, is at %s", first.Config().Host, second.Config().Host)
	}
	// The first config, that is the first certificates, must work.
	if _, err := client(t, first.Config()).CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.Start(t.Context(), controlplane.Options{Binary: binary, Dir: dir}); err == nil || !strings.Contains(err.Error(), "runs in") {
		t.Fatalf("a second one in the same directory: %v", err)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	c := start(t, controlplane.Options{})
	if len(processes(t, c.Dir())) != 5 { // the supervisor and four components
		t.Fatalf("processes: %v", processes(t, c.Dir()))
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	assertNoProcesses(t, c.Dir())
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Fatalf("the directory is still there: %v", err)
	}
}

func TestKilledSupervisorLeavesNoChildren(t *testing.T) {
	c := start(t, controlplane.Options{})
	kill(t, c.Dir(), "up")
	assertNoProcesses(t, c.Dir())
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("got %v, want an error that says: killed", err)
	}
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Fatalf("the directory is still there: %v", err)
	}
}

func TestDeadComponentStopsAllAndIsNamed(t *testing.T) {
	c := start(t, controlplane.Options{})
	kill(t, c.Dir(), "kube-scheduler")
	assertNoProcesses(t, c.Dir())
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "kube-scheduler ended by itself (signal: killed)") {
		t.Fatalf("got %v, want an error that names kube-scheduler", err)
	}
}

// TestKilledTestLeavesNothing starts the supervisor as Start does, from a
// process that is then killed.
func TestKilledTestLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command("sleep", "1000") // stands for the test process
	parent.Stdout = w
	supervisor := exec.Command(binary, "up", "--dir", dir, "--ephemeral", "--stop-with-stdin")
	supervisor.Stdin = r
	for _, cmd := range []*exec.Cmd{parent, supervisor} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	w.Close() // the other process has the only write end now
	eventually(t, "all components run", func() bool { return len(processes(t, dir)) == 5 })
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // says that it was killed
	if err := supervisor.Wait(); err != nil {
		t.Fatal(err)
	}
	assertNoProcesses(t, dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("the directory is still there: %v", err)
	}
}

// kill kills one process of the control plane in the directory.
func kill(t *testing.T, dir, component string) {
	t.Helper()
	for pid, args := range processes(t, dir) {
		if len(args) > 1 && args[1] == component {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no process %s", component)
}

// processes returns the command lines of the control plane in the directory.
func processes(t *testing.T, dir string) map[int][]string {
	t.Helper()
	found := map[int][]string{}
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, _ := os.ReadFile(path) // it may be gone
		args := strings.Split(string(data), "\x00")
		if filepath.Base(args[0]) != "controlplane" || !strings.Contains(string(data), dir) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		found[pid] = args
	}
	return found
}

func assertNoProcesses(t *testing.T, dir string) {
	t.Helper()
	eventually(t, "no process is left", func() bool { return len(processes(t, dir)) == 0 })
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	const patience = 2 * time.Minute
	for deadline := time.Now().Add(patience); !check(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
