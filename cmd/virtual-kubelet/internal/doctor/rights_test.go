package doctor

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A node with an identity of its own is asked about what nodes may not do, and about nothing
// else, which the Node authorizer allows or not by the object.
func TestRightsOfANodeItself(t *testing.T) {
	rule := func(resource, verb string) []runtime.Object {
		return []runtime.Object{&rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{verb}}}}}
	}
	for name, c := range map[string]struct {
		beside       []runtime.Object
		allowed      bool
		status       Status
		message, fix string
	}{
		"lacks one":  {rule("namespaces", "get"), false, Failed, "system:node:vk may not get namespaces (1 of 1", "print-rbac --node-identity | kubectl apply -f -"},
		"has it":     {rule("namespaces", "get"), true, OK, "system:node:vk has all 1", ""},
		"needs none": {nil, false, NotChecked, "Node authorizer", ""},
		"only bound": {[]runtime.Object{&rbacv1.RoleBinding{}}, false, NotChecked, "Node authorizer", ""},
	} {
		e := connect(t, func(w http.ResponseWriter, r *http.Request) {
			var review authorizationv1.SelfSubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Spec.ResourceAttributes.Resource != "namespaces" {
				t.Errorf("%s: it asks for %s %+v", name, r.URL, review.Spec)
			}
			review.Status.Allowed = c.allowed
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(review)
		})
		e.Cluster.ContentType = runtime.ContentTypeJSON
		e.user.Username, e.NodeGrants, e.NodeCommand = nodeUser+"vk", c.beside, "print-rbac --node-identity"
		e.Grants = rule("pods", "list")
		found := checkRights(t.Context(), e)
		if found.Status != c.status || !strings.Contains(found.Message, c.message) || !strings.Contains(found.Fix, c.fix) {
			t.Errorf("%s: %+v, want %s, %q, fix %q", name, found, c.status, c.message, c.fix)
		}
	}
}
