//go:build integration

package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// The values that virtual-kubelet init writes, of each kind, make a Deployment that runs what the
// manifests beside them run, with the same rights, also with a name that YAML takes for a number.
func TestValuesOfInit(t *testing.T) {
	checkout, err := filepath.Abs("../..")
	must(t, err)
	for _, kind := range []string{"pod", "podengine", "podgroup", "remote"} {
		t.Run(kind, func(t *testing.T) {
			const name = "123"
			dir := filepath.Join(t.TempDir(), name)
			_, err := run(t, "virtual-kubelet", "init", name, "--kind", kind, "--directory", dir, "--replace", checkout)
			must(t, err)
			read := func(path string) string {
				text, err := os.ReadFile(filepath.Join(dir, path))
				must(t, err)
				return string(text)
			}
			values := read("chart-values.yaml")
			written := parse(t, read("deploy/node.yaml")+"\n---\n"+read("deploy/rbac.yaml"))
			want := as[appsv1.Deployment](t, written["Deployment kube-system/"+name]).Spec.Template.Spec
			rights := flattened(rightsOf(t, written))
			for _, helm := range helms {
				if out, err := run(t, helm, "lint", "--strict", chartDir, "--values", writeValues(t, values)); err != nil {
					t.Errorf("%s: %v%s", helm, err, out)
				}
				made, err := template(t, helm, namespace, values)
				must(t, err)
				for _, object := range made {
					assertKnown(t, object)
				}
				got := as[appsv1.Deployment](t, made["Deployment vk/edge"]).Spec.Template.Spec
				if g, w := got.Containers[0].Image, want.Containers[0].Image; g != w {
					t.Errorf("%s: the image is %q, want %q", helm, g, w)
				}
				// The manifests have their files elsewhere.
				if g, w := flags(got.Containers[0].Args), flags(want.Containers[0].Args); !slices.Equal(g, w) && kind != "remote" {
					t.Errorf("%s: the arguments are %v, want %v", helm, g, w)
				}
				if !slices.Contains(got.Containers[0].Args, "--nodename="+name) {
					t.Errorf("%s: the arguments are %v, without the name of the node", helm, got.Containers[0].Args)
				}
				if len(got.InitContainers) != len(want.InitContainers) || len(want.InitContainers) > 0 && got.InitContainers[0].Image != want.InitContainers[0].Image {
					t.Errorf("%s: the sidecars are %v, want %v", helm, got.InitContainers, want.InitContainers)
				}
				if all := flattened(rightsOf(t, made)); !slices.Equal(all, rights) {
					t.Errorf("%s: the account has the rights %v, want those of the manifests: %v", helm, all, rights)
				}
				if kind == "remote" {
					continue
				}
				if got := made["ConfigMap vk/edge"]["data"].(map[string]any)["provider.yaml"].(string); !strings.Contains(got, "capacity:") {
					t.Errorf("%s: the configuration is %q", helm, got)
				}
			}
		})
	}
}

// flags are the names of the flags among arguments.
func flags(args []string) (names []string) {
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		names = append(names, name)
	}
	return names
}

// flattened are the rights of all roles, each once, without the names of the roles.
func flattened(rights map[string][]string) (all []string) {
	for object, of := range rights {
		if kind, _, _ := strings.Cut(object, " "); kind == "Role" || kind == "ClusterRole" {
			all = append(all, of...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
