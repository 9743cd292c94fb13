//go:build integration

package chart

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const base = "../../deploy/kustomize"

// The base of kustomize is what the chart makes, without the labels of Helm.
func TestKustomizeBaseIsOfTheChart(t *testing.T) {
	out, err := run(t, helms[1], "template", "virtual-kubelet", chartDir, "--namespace", "virtual-kubelet")
	must(t, err)
	made := parse(t, out)
	text := bytes.NewBufferString("# Made of charts/virtual-kubelet by the tests of test/chart.\n")
	for _, key := range slices.Sorted(maps.Keys(made)) {
		labels := made[key]["metadata"].(map[string]any)["labels"].(map[string]any)
		for _, label := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"} {
			delete(labels, label)
		}
		document, err := yaml.Marshal(made[key])
		must(t, err)
		text.WriteString("---\n")
		text.Write(document)
	}
	file := filepath.Join(base, "virtual-kubelet.yaml")
	if *update {
		must(t, os.WriteFile(file, text.Bytes(), 0o600))
	}
	is, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(is, text.Bytes()) {
		t.Errorf("%s is not what the chart makes: run the test with -update", file)
	}
}

// The overlay of docs/install.md makes a node of another provider, with its rights.
func TestOverlay(t *testing.T) {
	doc, err := os.ReadFile("../../docs/install.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(doc), "```yaml\n# kustomization.yaml\n")
	overlay, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/install.md has no kustomization.yaml")
	}
	dir := t.TempDir()
	resolved, err := filepath.Abs(base)
	must(t, err)
	relative, err := filepath.Rel(dir, resolved)
	must(t, err)
	rights, err := run(t, "virtual-kubelet", "config", "print-rbac", "--provider", "nomad", "--leader-elect", "--leader-elect-namespace", "virtual-kubelet", "--service-account", "virtual-kubelet/virtual-kubelet")
	must(t, err)
	for name, content := range map[string]string{
		"kustomization.yaml": strings.ReplaceAll(overlay, "../deploy/kustomize", relative),
		"rbac.yaml":          rights,
		"provider.yaml":      "address: https://nomad.example:4646\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "controlplane"), "kubectl", "kustomize", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	made := parse(t, string(out))
	for key, want := range rightsOf(t, parse(t, rights)) {
		if got := rightsOf(t, made)[key]; !slices.Equal(got, want) {
			t.Errorf("%s grants %v, want %v", key, got, want)
		}
	}
	if role := as[rbacv1.ClusterRole](t, made["ClusterRole <nil>/virtual-kubelet:virtual-kubelet"]); len(role.Rules) == 0 {
		t.Error("there are no rights in the cluster")
	}
	pod := as[appsv1.Deployment](t, made["Deployment virtual-kubelet/virtual-kubelet"]).Spec.Template.Spec
	ours := pod.Containers[0]
	if ours.Image != "registry.example.com/virtual-kubelet:v1" {
		t.Errorf("the image is %s", ours.Image)
	}
	for _, arg := range []string{"--provider=nomad", "--provider-config=/etc/virtual-kubelet/provider.yaml", "--leader-elect"} {
		if !slices.Contains(ours.Args, arg) {
			t.Errorf("there is no argument %s in %q", arg, ours.Args)
		}
	}
	volume := pod.Volumes[len(pod.Volumes)-1]
	if volume.ConfigMap == nil || made["ConfigMap virtual-kubelet/"+volume.ConfigMap.Name] == nil || ours.VolumeMounts[len(ours.VolumeMounts)-1].Name != volume.Name {
		t.Errorf("the configuration is not mounted: %+v", volume)
	}
}
