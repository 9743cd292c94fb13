//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// accountNamespace is where the service accounts of the nodes are.
const accountNamespace = "virtual-kubelets"

// newAccount makes a service account for a node, with the rights that the
// binary prints for it, and returns its user name and a kubeconfig file.
func newAccount(t *testing.T, dir, nodeName string) (user, kubeconfig string) {
	t.Helper()
	return newAccountFor(t, dir, nodeName, nodeName)
}

// newAccountFor makes one of the given name with the rights for a node, or for
// any node if nodeName is empty; args are further ones for print-rbac.
func newAccountFor(t *testing.T, dir, name, nodeName string, args ...string) (user, kubeconfig string) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: accountNamespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	apply := cluster.Kubectl(t.Context(), "apply", "-f", "-")
	apply.Stdin = strings.NewReader(printRBAC(t, name, nodeName, args...))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
	token, err := client.CoreV1().ServiceAccounts(accountNamespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(dir, "kubeconfig")
	writeKubeconfig(t, kubeconfig, &clientcmdapi.AuthInfo{Token: token.Status.Token})
	return "system:serviceaccount:" + accountNamespace + ":" + name, kubeconfig
}

// printRBAC returns what the binary prints for a service account and a node, or
// any node if nodeName is empty.
func printRBAC(t *testing.T, account, nodeName string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "virtual-kubelet"),
		append([]string{"config", "print-rbac", "--nodename", nodeName, "--service-account", accountNamespace + "/" + account}, args...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	manifests, err := command.Output()
	if err != nil {
		t.Fatalf("print-rbac: %v\n%s", err, &stderr)
	}
	return string(manifests)
}

// writeKubeconfig writes a kubeconfig for the control plane with credentials.
func writeKubeconfig(t *testing.T, path string, as *clientcmdapi.AuthInfo) {
	t.Helper()
	admin := cluster.Config()
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {
			Server:                   admin.Host,
			CertificateAuthority:     admin.CAFile,
			CertificateAuthorityData: admin.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"node": as},
		Contexts:       map[string]*clientcmdapi.Context{"node": {Cluster: "test", AuthInfo: "node"}},
		CurrentContext: "node",
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		t.Fatal(err)
	}
}

// requestsOf returns what a user has asked of the API server.
func requestsOf(t *testing.T, user string) (requests []auditv1.Event) {
	t.Helper()
	content, err := os.ReadFile(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		var request auditv1.Event
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		if err := json.Unmarshal(line, &request); err != nil {
			t.Fatalf("%v in the audit log: %s", err, line)
		}
		if request.User.Username == user && request.ObjectRef != nil {
			requests = append(requests, request)
		}
	}
	return requests
}

// assertNothingForbidden fails the test if a user has asked for something that
// it may not. The doctor may: it reports what it could not read. That an API server which starts has no roles yet is not the
// user's fault, nor is a namespace that ends.
func assertNothingForbidden(t *testing.T, user string) {
	t.Helper()
	reported := map[string]bool{}
	for _, request := range requestsOf(t, user) {
		if request.ResponseStatus == nil || request.ResponseStatus.Code != 403 || strings.HasPrefix(request.UserAgent, doctorAgent) {
			continue
		}
		why, what := request.ResponseStatus.Message, request.Verb+" "+request.RequestURI
		byRole := strings.Contains(why, fmt.Sprintf("cannot %s resource", request.Verb))
		if reported[what] || strings.Contains(why, "is being terminated") || byRole && isAllowed(t, request) {
			continue
		}
		reported[what] = true
		t.Errorf("%s may not %s: %s", user, what, why)
	}
}

// isAllowed says whether the roles that there are now allow a request.
func isAllowed(t *testing.T, request auditv1.Event) bool {
	t.Helper()
	of, verb := request.ObjectRef, request.Verb
	if verb == "list" { // to which an informer falls back whose watch is refused
		verb = "watch"
	}
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   request.User.Username,
			Groups: request.User.Groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: of.APIGroup, Version: of.APIVersion, Resource: of.Resource,
				Subresource: of.Subresource, Namespace: of.Namespace, Name: of.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// eventuallyAsked waits until a user has asked for something.
func eventuallyAsked(t *testing.T, user, what string, is func(auditv1.Event) bool) {
	t.Helper()
	eventually(t, user+" asks to "+what, func(context.Context) (bool, string) {
		for _, request := range requestsOf(t, user) {
			if is(request) {
				return true, ""
			}
		}
		return false, ""
	})
}
