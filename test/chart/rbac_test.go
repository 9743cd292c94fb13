//go:build integration

package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// rightsCase are values, and the arguments of print-rbac for the same settings.
type rightsCase struct {
	namespace, values, args string
	helms                   []string
}

// The chart grants what print-rbac prints, by objects of the same names.
func TestRightsAreThoseOfPrintRBAC(t *testing.T) {
	pools := filepath.Join(t.TempDir(), "pools.yaml")
	const somePools = "pools: [{name: a, count: 2}, {name: b, count: 1, provider: kubernetes}]"
	must(t, os.WriteFile(pools, []byte("{apiVersion: virtual-kubelet.io/v1alpha1, kind: NodePools, name: edge, deleteNodes: true, "+somePools+"}"), 0o600))
	cases := []rightsCase{
		{"vk", "replicas: 1", "--nodename edge --service-account vk/edge", helms},
		{"kube-system", "replicas: 1", "--nodename edge --service-account kube-system/edge", helms},
		{"vk", "{nodeName: n1.example.com, replicas: 3}", "--nodename n1.example.com --service-account vk/edge --leader-elect --leader-elect-namespace vk", helms},
		{"vk", "{watchNamespace: apps, provider: {name: eci}}", "--nodename edge --namespace apps --service-account vk/edge --leader-elect --leader-elect-namespace vk", helms},
		{"vk", "{watchNamespace: default, replicas: 1}", "--nodename edge --namespace default --service-account vk/edge", helms},
		{"vk", "{watchNamespace: kube-system, replicas: 1}", "--nodename edge --namespace kube-system --service-account vk/edge", helms[:1]},
		{"vk", "{watchNamespace: kube-node-lease, replicas: 1}", "--nodename edge --namespace kube-node-lease --service-account vk/edge", helms[:1]},
		{"vk", "{deleteNodes: true, " + somePools + "}", "--provider mock --config " + pools + " --service-account vk/edge --shards --leader-elect-namespace vk", helms},
		{"vk", "{fullnameOverride: other, serviceAccount: {create: false, name: mine}}", "--nodename other --service-account vk/mine --leader-elect --leader-elect-namespace vk", helms},
	}
	listed, err := run(t, "virtual-kubelet", "providers")
	must(t, err)
	for line := range strings.Lines(listed) {
		provider := strings.Fields(line)[0]
		if provider != "cri" && provider != "process" { // the chart refuses them
			cases = append(cases, rightsCase{"vk", "{replicas: 1, provider: {name: " + provider + "}}", "--nodename edge --service-account vk/edge --provider " + provider, helms[:1]})
		}
	}
	for _, c := range cases {
		args := strings.Fields("config print-rbac " + c.args)
		if name, ok := providerOf(c.values); ok && !slices.Contains(args, "--provider") {
			args = append(args, "--provider", name)
		}
		printed, err := run(t, "virtual-kubelet", args...)
		must(t, err)
		want := rightsOf(t, parse(t, printed))
		if strings.Contains(c.values, "create: false") {
			delete(want, "ServiceAccount vk/mine")
		}
		for _, helm := range c.helms {
			made, err := template(t, helm, c.namespace, c.values)
			must(t, err)
			if got := rightsOf(t, made); !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s: with %s the chart has\n%swant as virtual-kubelet %s prints\n%s", helm, c.values, lines(got), strings.Join(args, " "), lines(want))
			}
		}
	}
}

func providerOf(values string) (string, bool) {
	_, after, ok := strings.Cut(values, "provider: {name: ")
	name, _, _ := strings.Cut(after, "}")
	return name, ok && !strings.Contains(values, "pools")
}

// rightsOf returns what objects grant, and to whom, by object.
func rightsOf(t *testing.T, all objects) map[string][]string {
	t.Helper()
	rights := map[string][]string{}
	for key, object := range all {
		switch object["kind"] {
		case "ServiceAccount":
			rights[key] = nil
		case "Role", "ClusterRole":
			rights[key] = flatten(as[rbacv1.ClusterRole](t, object).Rules)
		case "RoleBinding", "ClusterRoleBinding":
			binding := as[rbacv1.ClusterRoleBinding](t, object)
			rights[key] = []string{fmt.Sprint(binding.RoleRef, " to ", binding.Subjects)}
		}
	}
	return rights
}

// flatten returns each right of rules once.
func flatten(rules []rbacv1.PolicyRule) (rights []string) {
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{"*"}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					for _, verb := range r.Verbs {
						rights = append(rights, fmt.Sprintf("%s %s/%s %s", verb, group, resource, name))
					}
				}
			}
		}
	}
	slices.Sort(rights)
	return slices.Compact(rights)
}

func lines(rights map[string][]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(rights)) {
		fmt.Fprintln(&text, key, strings.Join(rights[key], ", "))
	}
	return text.String()
}
