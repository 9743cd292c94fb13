package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// accountUser begins the names of users that are service accounts.
const accountUser = "system:serviceaccount:"

// applied is what a command is followed by whose output is applied.
const applied = " | kubectl apply -f -"

// maxReviews is how many rights are asked for at the same time: an authorizer of a managed
// cluster may need a second for each.
const maxReviews = 8

// maxNamed is how many of the same are named in a message.
const maxNamed = 3

// checkRights asks for each right of the manifests whether the process has it. The Node
// authorizer does not say what it allows without the object that is asked for: of a node only
// those beside it are asked for.
func checkRights(ctx context.Context, e *examination) Finding {
	user, grants, fix := e.process(), e.Grants, e.grant()
	if strings.HasPrefix(user, nodeUser) {
		grants, fix = e.NodeGrants, e.NodeCommand+applied
	}
	rights := rightsOf(grants)
	if len(rights) == 0 {
		return notChecked("%s has its rights from the Node authorizer, without roles", user)
	}
	client, err := kubernetes.NewForConfig(e.asProcess())
	if err != nil {
		return failed("", "cannot make a client for %s: %v", user, err)
	}
	lacks := make([]bool, len(rights))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(maxReviews)
	for i, right := range rights {
		asking.Go(func() error {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
			}, metav1.CreateOptions{})
			if err == nil {
				lacks[i] = !review.Status.Allowed
			}
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return e.unread("the rights of "+user, err)
	}
	var missing []string
	for i, right := range rights {
		if lacks[i] {
			missing = append(missing, describeRight(right))
		}
	}
	if len(missing) == 0 {
		return ok("%s has all %d", user, len(rights))
	}
	return failed(fix, "%s may not %s (%d of %d rights are missing)", user, named(missing), len(missing), len(rights))
}

// process is the user that the nodes' process is to the API server.
func (e *examination) process() string {
	if e.ServiceAccount == "" {
		return e.user.Username
	}
	return accountUser + strings.Replace(e.ServiceAccount, "/", ":", 1)
}

// asProcess returns the API server with the rights of the nodes' process.
func (e *examination) asProcess() *rest.Config {
	config := rest.CopyConfig(e.Cluster)
	if e.ServiceAccount != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: e.process()}
	}
	return config
}

// grant returns the command that gives the process its rights.
func (e *examination) grant() string {
	account := strings.Replace(strings.TrimPrefix(e.process(), accountUser), ":", "/", 1)
	if account == e.process() {
		return e.GrantCommand + applied + ", and a kubeconfig of that service account (docs/identity.md)"
	}
	return e.GrantCommand + " --service-account " + Word(account) + applied
}

// rightsOf returns the rights that roles grant. A role of the cluster's own which is
// bound only is not among them: checkClientCA tries what it is for.
func rightsOf(objects []runtime.Object) (rights []authorizationv1.ResourceAttributes) {
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.Role:
			rights = append(rights, rightsIn(role.Namespace, role.Rules)...)
		case *rbacv1.ClusterRole:
			rights = append(rights, rightsIn("", role.Rules)...)
		}
	}
	return rights
}

func rightsIn(namespace string, rules []rbacv1.PolicyRule) (rights []authorizationv1.ResourceAttributes) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, name := range names {
				for _, verb := range rule.Verbs {
					rights = append(rights, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb,
						Group: rule.APIGroups[0], Resource: resource, Subresource: subresource, Name: name})
				}
			}
		}
	}
	slices.SortStableFunc(rights, func(a, b authorizationv1.ResourceAttributes) int { return cmp.Compare(a.Resource, b.Resource) })
	return rights
}

// describeRight returns a right as in "patch nodes/status vk in namespace x".
func describeRight(right authorizationv1.ResourceAttributes) string {
	text := right.Verb + " " + right.Resource
	if right.Group != "" {
		text += "." + right.Group
	}
	if right.Subresource != "" {
		text += "/" + right.Subresource
	}
	if right.Name != "" {
		text += " " + right.Name
	}
	if right.Namespace != "" {
		text += " in namespace " + right.Namespace
	}
	return text
}

// named joins the first few of many.
func named(all []string) string {
	text := strings.Join(all[:min(len(all), maxNamed)], ", ")
	if more := len(all) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
