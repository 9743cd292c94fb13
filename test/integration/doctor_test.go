//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// doctorAgent begins the doctor's User-Agent.
const doctorAgent = "virtual-kubelet-doctor/"

// diagnosis is what the doctor prints with --output json.
type diagnosis struct {
	Checks []struct{ Check, Node, Status, Message, Fix string }
}

// bad returns the status of each check that is neither ok nor left out.
func (d diagnosis) bad() map[string]string {
	bad := map[string]string{}
	for _, c := range d.Checks {
		if c.Status != "ok" && c.Status != "not checked" {
			bad[c.Check] = c.Status
		}
	}
	return bad
}

// doctor examines a node, and fails the test if the exit status is not what the results
// ask for.
func doctor(t *testing.T, env []string, args ...string) diagnosis {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "virtual-kubelet"), append([]string{"doctor", "-o", "json"}, args...)...)
	command.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	var found diagnosis
	if jsonErr := json.Unmarshal(out, &found); jsonErr != nil {
		t.Fatalf("doctor %v: %v, %v\n%s%s", args, err, jsonErr, out, &stderr)
	}
	if fails := slices.Contains(slices.Collect(maps.Values(found.bad())), "failed"); fails != (command.ProcessState.ExitCode() == 1) {
		t.Errorf("doctor %v: exit status %d with the results %+v", args, command.ProcessState.ExitCode(), found)
	}
	return found
}

// wantBad fails the test unless the check alone has that status, for a reason and with a
// fix that contain the given texts. A cluster without metrics-server is no news.
func wantBad(t *testing.T, found diagnosis, check, status, message, fix string) {
	t.Helper()
	bad := found.bad()
	if bad["metrics-server"] == "warning" {
		delete(bad, "metrics-server")
	}
	if want := map[string]string{check: status}; !maps.Equal(bad, want) {
		t.Errorf("found %v, want %v:\n%+v", bad, want, found)
	}
	for _, c := range found.Checks {
		if c.Check == check && (!strings.Contains(c.Message, message) || !strings.Contains(c.Fix, fix)) {
			t.Errorf("%s: %q, fix %q; want %q, fix %q", check, c.Message, c.Fix, message, fix)
		}
	}
}

// asAdmin are the flags with which an administrator examines a node.
func asAdmin(n *virtualNode) []string {
	return []string{"--kubeconfig", cluster.Kubeconfig(), "--nodename", n.name, "--provider", "mock",
		"--service-account", accountNamespace + "/" + n.name}
}

func TestDoctorOfAHealthyNode(t *testing.T) {
	n := startNode(t)
	for name, args := range map[string][]string{
		"an administrator": asAdmin(n),
		"the node":         {"--kubeconfig", n.kubeconfig, "--nodename", n.name, "--provider", "mock", "--provider-config", n.config},
	} {
		found := eventuallyBad(t, "", args...)
		if len(found.Checks) < 9 {
			t.Errorf("%s: there are only %d checks", name, len(found.Checks))
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "virtual-kubelet"), append([]string{"doctor"}, asAdmin(n)...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nok           ready") {
		t.Errorf("as text: %v\n%s", err, out)
	}
	// It has changed nothing.
	for _, request := range requestsOf(t, n.user) {
		if strings.HasPrefix(request.UserAgent, doctorAgent) && request.Verb != "get" && request.Verb != "list" && !strings.HasPrefix(request.ObjectRef.Resource, "self") {
			t.Errorf("the doctor did %s %s", request.Verb, request.RequestURI)
		}
	}
}

func TestDoctorFindsWrongCredentials(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, kubeconfig, &clientcmdapi.AuthInfo{Token: "wrong"})
	found := eventuallyBad(t, "credentials", "--kubeconfig", kubeconfig)
	wantBad(t, found, "credentials", "failed", "refuses the credentials", "create token")
	for _, c := range found.Checks {
		if c.Check == "rights" && c.Message != "credentials failed" {
			t.Errorf("rights: %s %q, want that credentials failed", c.Status, c.Message)
		}
	}
}

// The rights of an account, and those of an account that somebody else examines.
func TestDoctorFindsAMissingRight(t *testing.T) {
	n := startNode(t)
	name := accountNamespace + ":" + n.name
	role, err := client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "services") })
	if _, err := client.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	fix := "print-rbac --nodename " + n.name + " --provider mock --service-account " + accountNamespace + "/" + n.name
	for _, args := range [][]string{asAdmin(n), {"--kubeconfig", n.kubeconfig, "--nodename", n.name, "--provider", "mock"}} {
		eventually(t, "the role is in force", func(context.Context) (bool, string) {
			bad := doctor(t, nil, args...).bad()
			return bad["rights"] != "", fmt.Sprint(bad)
		})
		wantBad(t, eventuallyBad(t, "rights", args...), "rights", "failed", "may not list services, watch services (2 of", fix)
	}
	// The command does fix it.
	newAccount(t, t.TempDir(), n.name)
	eventually(t, "the right is there", func(context.Context) (bool, string) {
		bad := doctor(t, nil, asAdmin(n)...).bad()
		return bad["rights"] == "", fmt.Sprint(bad)
	})
}

// proxied returns a kubeconfig of an administrator for the API server by way of a proxy,
// which changes its answers.
func proxied(t *testing.T, change func(*http.Response) error) string {
	t.Helper()
	config := cluster.Config()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		ModifyResponse: change,
	})
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "proxied")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDoctorFindsAClockThatIsWrong(t *testing.T) {
	n := startNode(t)
	kubeconfig := proxied(t, func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		return nil
	})
	found := eventuallyBad(t, "clock", append(asAdmin(n), "--kubeconfig", kubeconfig)...)
	wantBad(t, found, "clock", "failed", "behind the API server's", "timedatectl")
}

func TestDoctorFindsAnOldAPIServer(t *testing.T) {
	n := startNode(t)
	kubeconfig := proxied(t, func(r *http.Response) error {
		if r.Request.URL.Path == "/version" {
			r.Header.Del("Content-Length")
			r.Header.Set("Content-Type", "application/json")
			r.Body.Close()
			body := `{"major": "1", "minor": "20", "gitVersion": "v1.20.1"}`
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
		return nil
	})
	found := eventuallyBad(t, "version", append(asAdmin(n), "--kubeconfig", kubeconfig)...)
	wantBad(t, found, "version", "warning", "v1.20.1", "upgrade the control plane")
}

func TestDoctorFindsNoNode(t *testing.T) {
	found := eventuallyBad(t, "node", "--kubeconfig", cluster.Kubeconfig(), "--nodename", "nobody", "--provider", "mock")
	wantBad(t, found, "node", "failed", "there is no Node nobody", "--nodename nobody")
}

func TestDoctorFindsTheNodeOfAnotherProvider(t *testing.T) {
	n := startNode(t)
	found := eventuallyBad(t, "node", append(asAdmin(n), "--provider", "process", "--service-account", "")...)
	wantBad(t, found, "node", "failed", "belongs to provider mock", "--adopt-node")
}

func TestDoctorFindsALeaseThatRanOut(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := startNode(t)
	n.stop(t, syscall.SIGKILL)
	eventually(t, "the lease has run out", func(context.Context) (bool, string) {
		bad := doctor(t, nil, asAdmin(n)...).bad()
		return bad["lease"] != "", fmt.Sprint(bad)
	})
	wantBad(t, eventuallyBad(t, "lease", asAdmin(n)...), "lease", "failed", "no process acts for the node", "start virtual-kubelet --nodename "+n.name)
	n.start(t)
}

// The doctor in a pod finds out that another one has the node.
func TestDoctorFindsAnotherHolder(t *testing.T) {
	n := startNode(t)
	n.stop(t, syscall.SIGTERM)
	n.env = []string{"VKUBELET_POD_UID=that"}
	n.start(t)
	found := doctor(t, []string{"VKUBELET_POD_UID=this"}, asAdmin(n)...)
	wantBad(t, found, "holder", "failed", "(pod UID that)", "another --nodename")
}

// A Node that is not ready, of which nothing else is wrong: the test makes it, and its
// lease, with the address of a node that is well.
func TestDoctorFindsANodeThatIsNotReady(t *testing.T) {
	n := startNode(t)
	name := n.name + "-ill"
	well, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{node.LabelProvider: "mock"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	t.Cleanup(func() {
		for _, err := range []error{
			client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}),
			leases.Delete(context.Background(), name, metav1.DeleteOptions{}),
		} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	eventually(t, "the status is written", func(ctx context.Context) (bool, string) { // the control plane taints it meanwhile
		made, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		made.Status = *well.Status.DeepCopy()
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "ProviderNotReady", Message: "the account has no credit"}}
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	if _, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"virtual-kubelet.io/holder": "a_b_c_d_e_f_g"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: ptr.To(metav1.NowMicro())},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	found := eventuallyBad(t, "ready", append(asAdmin(n), "--nodename", name, "--service-account", "")...)
	wantBad(t, found, "ready", "failed", "", "virtual-kubelet providers mock")
}

// Of two pools one is wrong; the node of the other is well.
func TestDoctorFindsAPoolThatIsWrong(t *testing.T) {
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "pools.yaml")
	pools := fmt.Sprintf("apiVersion: virtual-kubelet.io/v1alpha1\nkind: NodePools\nname: edge\npools:\n- {name: well, count: 1, nodeName: %s}\n- {name: ill, count: 1, provider: nope}\n", n.name)
	if err := os.WriteFile(file, []byte(pools), 0o600); err != nil {
		t.Fatal(err)
	}
	found := eventuallyBad(t, "configuration", "--kubeconfig", cluster.Kubeconfig(), "--config", file, "--provider", "mock")
	wantBad(t, found, "configuration", "failed", "pools[ill].provider", "correct the file")
}
