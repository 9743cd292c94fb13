//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// A node's service account has no right that a node does not use in its life.
// That it lacks none is seen to by every test (see startNode).
func TestEveryRightIsUsed(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	nodes, pods := client.CoreV1().Nodes(), client.CoreV1().Pods(ns)

	kubectl(t, "-n", ns, "create", "configmap", "settings", "--from-literal=COLOR=blue")
	kubectl(t, "-n", ns, "create", "secret", "generic", "keys", "--from-literal=TOKEN=abc")
	spec := podSpec(n)
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}},
	}
	createPod(t, ns, "hello", spec, nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)

	// Callers of the kubelet API: one with a certificate, one with a token.
	kubectl(t, "-n", ns, "logs", "hello")
	node, err := nodes.Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("https://%s:%d/pods", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	get(t, url, strings.TrimSpace(kubectl(t, "-n", ns, "create", "token", "default")))

	// The same event twice; then a label of the node that somebody removes.
	for i := range 2 {
		kubectl(t, "-n", ns, "label", "--overwrite", "pod", "hello", fmt.Sprint("round=", i))
		eventually(t, "the update is reported", func(ctx context.Context) (bool, string) {
			events, err := client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err.Error()
			}
			return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return e.Reason == "ProviderUpdateSuccess" && int(e.Count) > i
			}), ""
		})
	}
	kubectl(t, "label", "node", n.name, "type-")
	eventually(t, "the label is back", func(ctx context.Context) (bool, string) {
		node, err := nodes.Get(ctx, n.name, metav1.GetOptions{})
		return err == nil && node.Labels["type"] != "", fmt.Sprint(err)
	})

	createPod(t, ns, "short", spec, nil)
	short := waitForPhase(t, ns, "short", corev1.PodRunning)
	kubectl(t, "-n", ns, "delete", "pod", "short")
	waitForGone(t, short)

	// A pod that ends while the node is away, which then lists what servers
	// before Kubernetes 1.34 cannot stream.
	createPod(t, ns, "orphan", spec, nil)
	waitForPhase(t, ns, "orphan", corev1.PodRunning)
	n.stop(t, syscall.SIGKILL)
	if err := pods.Delete(t.Context(), "orphan", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	n.env = append(n.env, "KUBE_FEATURE_WatchListClient=false")
	n.start(t)
	createPod(t, ns, "again", spec, nil)
	waitForPhase(t, ns, "again", corev1.PodRunning)
	eventuallyAsked(t, n.user, "get the orphan", func(request auditv1.Event) bool {
		return request.Verb == "get" && request.ObjectRef.Resource == "pods" && request.ObjectRef.Name == "orphan"
	})

	requests := requestsOf(t, n.user)
	for _, right := range rightsOf(t, printRBAC(t, n.name, n.name)) {
		if !slices.ContainsFunc(requests, right.covers) {
			t.Errorf("the right to %s is not used", right)
		}
	}
}

// right is a verb on a resource.
type right struct {
	namespace, group, resource, subresource, name, verb string
}

func (r right) String() string {
	return fmt.Sprintf("%s %s/%s/%s %q in namespace %q", r.verb, r.group, r.resource, r.subresource, r.name, r.namespace)
}

func (r right) covers(request auditv1.Event) bool {
	of := request.ObjectRef
	if of.Namespace == metav1.NamespaceSystem && of.Resource == "configmaps" && r.name == "" {
		return false // that of the client CA has a role of its own
	}
	return r.verb == request.Verb && r.group == of.APIGroup && r.resource == of.Resource && r.subresource == of.Subresource &&
		(r.name == "" || r.name == of.Name) && (r.namespace == "" || r.namespace == of.Namespace)
}

// rightsOf returns the rights that manifests grant. A role that the cluster has
// already counts as one right, to read what it is about.
func rightsOf(t *testing.T, manifests string) (rights []right) {
	t.Helper()
	for _, text := range strings.Split(manifests, "---\n") {
		var object struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Rules             []rbacv1.PolicyRule `json:"rules"`
			RoleRef           rbacv1.RoleRef      `json:"roleRef"`
		}
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil && object.Kind == "" {
			t.Fatal(err)
		}
		if object.RoleRef.Name == "extension-apiserver-authentication-reader" {
			rights = append(rights, right{namespace: object.Namespace, resource: "configmaps", name: "extension-apiserver-authentication", verb: "watch"})
		}
		for _, rule := range object.Rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						rights = append(rights, right{object.Namespace, rule.APIGroups[0], resource, subresource, name, verb})
					}
				}
			}
		}
	}
	if len(rights) < 20 {
		t.Fatalf("found only the rights %v", rights)
	}
	return rights
}
