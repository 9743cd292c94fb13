//go:build integration

package chart

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// Values make the objects of the golden file of that name, which are ones that Kubernetes
// knows, with both versions of Helm.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/values/*.yaml")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there are no values")
	}
	for _, file := range files {
		values, err := os.ReadFile(file)
		must(t, err)
		for _, helm := range helms {
			t.Run(filepath.Base(file)+"/"+helm, func(t *testing.T) {
				if out, err := run(t, helm, "lint", "--strict", chartDir, "--values", file); err != nil {
					t.Errorf("%v%s", err, out)
				}
				made, err := template(t, helm, namespace, string(values))
				must(t, err)
				var text bytes.Buffer
				for _, key := range slices.Sorted(maps.Keys(made)) {
					assertKnown(t, made[key])
					shorten(made[key])
					document, err := yaml.Marshal(made[key])
					must(t, err)
					text.WriteString("---\n")
					text.Write(document)
				}
				golden := filepath.Join("testdata/golden", filepath.Base(file))
				if *update {
					must(t, os.WriteFile(golden, text.Bytes(), 0o600))
				}
				want, err := os.ReadFile(golden)
				must(t, err)
				if !bytes.Equal(text.Bytes(), want) {
					t.Errorf("%s is not what the chart makes; see what changes with -update:\n%s", golden, text.Bytes())
				}
			})
		}
	}
}

// assertKnown fails the test if an object of Kubernetes has fields that its type has not.
func assertKnown(t *testing.T, object map[string]any) {
	t.Helper()
	group, err := schema.ParseGroupVersion(object["apiVersion"].(string))
	must(t, err)
	if group.Group == "monitoring.coreos.com" {
		return
	}
	typed, err := scheme.Scheme.New(group.WithKind(object["kind"].(string)))
	must(t, err)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true))
}

// shorten leaves out what is of files of deploy/.
func shorten(object map[string]any) {
	if data, ok := object["data"].(map[string]any); ok && data["virtual-kubelet.json"] != nil {
		data["virtual-kubelet.json"] = "..."
	}
	if object["kind"] == "PrometheusRule" {
		object["spec"] = "..."
	}
}

// The chart has the dashboard and the alerts of deploy/, and no others.
func TestFilesAreThoseOfDeploy(t *testing.T) {
	for mine, origin := range map[string]string{"alerts.yaml": "prometheus/alerts.yaml", "dashboard.json": "grafana/virtual-kubelet.json"} {
		want, err := os.ReadFile(filepath.Join("../../deploy", origin))
		must(t, err)
		mine = filepath.Join(chartDir, "files", mine)
		if *update {
			must(t, os.WriteFile(mine, want, 0o600))
		}
		got, err := os.ReadFile(mine)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not deploy/%s: copy it", mine, origin)
		}
	}
	for _, helm := range helms {
		made, err := template(t, helm, namespace, "metrics: {enabled: true, alerts: true, dashboard: true}")
		must(t, err)
		var alerts map[string]any
		text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
		must(t, err)
		must(t, yaml.Unmarshal(text, &alerts))
		if got := made["PrometheusRule vk/edge"]["spec"]; !reflect.DeepEqual(got, any(alerts)) {
			t.Errorf("%s: the alerts are %v", helm, got)
		}
		text, err = os.ReadFile("../../deploy/grafana/virtual-kubelet.json")
		must(t, err)
		if got := made["ConfigMap vk/edge-dashboard"]["data"].(map[string]any)["virtual-kubelet.json"]; got != string(text) {
			t.Errorf("%s: the dashboard is %v", helm, got)
		}
	}
}

// A change of the provider's configuration restarts the processes that read it at their
// start, and no other change of a ConfigMap does.
func TestRestarts(t *testing.T) {
	podOf := func(kind, values string) any {
		t.Helper()
		made, err := template(t, "helm4", namespace, values)
		must(t, err)
		workload := made[kind+" vk/edge"]
		if workload == nil {
			t.Fatalf("there is no %s with %s", kind, values)
		}
		return workload["spec"].(map[string]any)["template"]
	}
	for _, c := range []struct {
		kind, before, after string
		restarts            bool
	}{
		{"Deployment", "provider: {config: {startDelay: 1s}}", "provider: {config: {startDelay: 2s}}", true},
		{"Deployment", "replicas: 2", "replicas: 3", false},
		{"Deployment", "metrics: {alerts: false}", "metrics: {alerts: true, dashboard: true}", false},
		{"Deployment", "networkPolicy: {enabled: false}", "networkPolicy: {enabled: true}", false},
		{"StatefulSet", "pools: [{name: a, count: 1}]", "pools: [{name: a, count: 2}]", false},
		{"StatefulSet", "{provider: {config: {startDelay: 1s}}, pools: [{name: a, count: 1}]}", "{provider: {config: {startDelay: 2s}}, pools: [{name: a, count: 1}]}", false},
	} {
		if before, after := podOf(c.kind, c.before), podOf(c.kind, c.after); reflect.DeepEqual(before, after) == c.restarts {
			t.Errorf("from %s to %s: restarts: %v, want %v", c.before, c.after, !c.restarts, c.restarts)
		}
	}
}

// Pods without a readiness probe, in which a process that stands by runs, replace those before
// them only if they last. Those of any release see no services, of which one named kubelet would
// set $KUBELET_PORT.
func TestPodsThatLast(t *testing.T) {
	for _, c := range []struct {
		kind, values  string
		probed, waits bool
	}{
		{"Deployment", "replicas: 2", false, true},
		{"Deployment", "{replicas: 2, metrics: {enabled: true}}", true, false},
		{"Deployment", "replicas: 1", true, false},
		{"StatefulSet", "pools: [{name: a, count: 1}]", true, false},
		// Without a certificate, which waits to be approved, the kubelet API fails every probe.
		{"Deployment", "{replicas: 1, nodeIdentity: {bootstrapSecretName: a}, servingCertificate: {fromCluster: true}}", false, false},
		{"Deployment", "{replicas: 1, nodeIdentity: {bootstrapSecretName: a}, servingCertificate: {fromCluster: true}, metrics: {enabled: true}}", true, false},
		{"Deployment", "{replicas: 1, nodeIdentity: {kubeconfigSecretName: a}, servingCertificate: {fromCluster: true}, metrics: {enabled: true}}", true, false},
		// Nor does it answer before the client certificate is approved.
		{"Deployment", "{replicas: 1, nodeIdentity: {bootstrapSecretName: a}}", false, false},
		{"Deployment", "{replicas: 1, nodeIdentity: {bootstrapSecretName: a}, metrics: {enabled: true}}", true, false},
	} {
		made, err := template(t, "helm4", namespace, c.values)
		must(t, err)
		spec := made[c.kind+" vk/edge"]["spec"].(map[string]any)
		pod := spec["template"].(map[string]any)["spec"].(map[string]any)
		probe := pod["containers"].([]any)[0].(map[string]any)["readinessProbe"]
		if wait := spec["minReadySeconds"]; (probe != nil) != c.probed || (wait != nil) != c.waits {
			t.Errorf("with %s the readiness probe is %v, and minReadySeconds %v", c.values, probe, wait)
		}
		if strings.Contains(c.values, "nodeIdentity") && c.probed && probe.(map[string]any)["httpGet"].(map[string]any)["port"] != "metrics" {
			t.Errorf("with %s the readiness probe is %v", c.values, probe)
		}
		if pod["enableServiceLinks"] != false {
			t.Errorf("with %s the process has the variables of services", c.values)
		}
	}
}

// What is wrong with values is in the error, with what to do.
func TestRefused(t *testing.T) {
	for values, wants := range map[string][]string{
		"replica: 2":            {"replica"},
		"replicas: many":        {"replicas", "integer"},
		"nodeName: Node_1":      {"nodeName", "does not match"},
		"nodeName: \"a\\nb\"":   {"nodeName", "does not match"},
		"provider: {name: cri}": {"provider cri runs pods on the machine", "providers/cri/README.md"},
		"pools: [{name: a, count: 1, provider: process}]": {"provider process runs pods on the machine"},
		"provider: {name: \"\"}":                          {"provider", "name"},
		"pools: [{name: a}]":                              {"pools", "count"},
		"pools: [{name: a, count: 1, label: {}}]":         {"pools", "label"},
		"{nodeName: a, pools: [{name: a, count: 1}]}":     {"nodeName and pools are both set"},
		"deleteNodes: true":                               {"deleteNodes is true, but there are no pools"},
		"extraArgs: [--nodename=x]":                       {"--nodename", "set nodeName"},
		"extraArgs: [--config, x]":                        {"extraArgs"},
		"extraArgs: [--port=10260]":                       {"--port", "the port is 10250"},
		"nodeName: " + strings.Repeat("a", 64):            {"nodeName", "does not match"},
		"fullnameOverride: " + strings.Repeat("a", 53):    {"fullnameOverride", "does not match"},
		"metrics: {enabled: true, port: 10250}":           {"metrics.port is 10250"},
		"metrics: {monitor: true}":                        {"metrics.enabled"},
		"args: [--nodename=x]":                            {"args is set, and replicas is 2", "set replicas to 1"},
		"{args: [a], pools: [{name: a, count: 1}]}":       {"args and pools are both set"},
		"{args: [a], replicas: 1, extraArgs: [--a]}":      {"args and extraArgs are both set"},
		"{args: [1], replicas: 1}":                        {"args", "string"},
		"serviceAccount: {create: false}":                 {"serviceAccount.name"},
		"image: {tag: \"a b\"}":                           {"tag", "does not match"},
		"nodeIdentity: {bootstrapSecretName: a}":          {"nodeIdentity", "set replicas to 1"},
		"{replicas: 1, nodeIdentity: {bootstrapSecretName: a, kubeconfigSecretName: b}}":                                 {"nodeIdentity", "leave out one"},
		"{replicas: 1, nodeIdentity: {kubeconfigSecretName: a}, pools: [{name: a, count: 1}]}":                           {"nodeIdentity", "pools"},
		"servingCertificate: {fromCluster: true}":                                                                        {"fromCluster", "nodeIdentity"},
		"{replicas: 1, nodeIdentity: {kubeconfigSecretName: a}, servingCertificate: {fromCluster: true, secretName: b}}": {"servingCertificate", "leave out one"},
		"{replicas: 1, nodeIdentity: {kubeconfigSecretName: a}, extraArgs: [--kubeconfig=/a]}":                           {"--kubeconfig", "nodeIdentity.kubeconfigSecretName"},
		"{replicas: 1, nodeIdentity: {bootstrapSecretName: a}, extraArgs: [--cert-dir=/a]}":                              {"--cert-dir", "nodeIdentity.certificates"},
		"{replicas: 1, nodeIdentity: {kubeconfigSecretName: a}, extraArgs: [--serving-certificate=cluster]}":             {"--serving-certificate", "set servingCertificate"},
		"{replicas: 1, nodeIdentity: {bootstrapSecretName: a, certificates: {name: b}}}":                                 {"certificates", "name"},
		"{replicas: 1, nodeIdentity: {bootstrapSecretName: a, certificates: {emptyDir: {}, hostPath: {path: /a}}}}":      {"certificates"},
		"{replicas: 1, nodeIdentity: {kubeconfigSecretName: a, certificates: {emptyDir: {}}}}":                           {"nodeIdentity.certificates", "servingCertificate.fromCluster"},
		"nodeIdentity: {certificates: {emptyDir: {}}}":                                                                   {"nodeIdentity.certificates", "bootstrapSecretName"},
		"{replicas: 1, nodeIdentity: {bootstrapSecretName: a}, args: [--nodename=x]}":                                    {"args and nodeIdentity are set", "/etc/virtual-kubelet-identity/kubeconfig"},
	} {
		for _, helm := range helms {
			_, err := template(t, helm, namespace, values)
			if err == nil {
				t.Errorf("%s: %s is not refused", helm, values)
				continue
			}
			for _, want := range wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: no %q in the error of %s: %v", helm, want, values, err)
				}
			}
		}
	}
}

// A variable of env takes the place of the chart's own: Helm refuses or loses what is there twice.
func TestOwnVariables(t *testing.T) {
	for _, helm := range helms {
		made, err := template(t, helm, namespace, "env: [{name: VKUBELET_POD_IP, value: 192.0.2.9}]")
		must(t, err)
		env := as[appsv1.Deployment](t, made["Deployment vk/edge"]).Spec.Template.Spec.Containers[0].Env
		if len(env) != 2 || env[0].Name != "VKUBELET_POD_UID" || env[1].Name != "VKUBELET_POD_IP" || env[1].Value != "192.0.2.9" {
			t.Errorf("%s: the variables are %v", helm, env)
		}
	}
}

// Texts stay what they are, also those that look like YAML or like templates.
func TestTextsAreQuoted(t *testing.T) {
	const hostile = "--log-level=x\"\n        - --anonymous-auth\n{{ fail \"here\" }}"
	for _, arguments := range []map[string]any{{"extraArgs": []string{hostile}}, {"args": []string{"a", hostile}, "replicas": 1}} {
		maps.Copy(arguments, map[string]any{
			"provider":       map[string]any{"config": hostile},
			"podAnnotations": map[string]any{"a": "true", "b": hostile},
			"env":            []any{map[string]any{"name": "A", "value": hostile}},
		})
		values, err := yaml.Marshal(arguments)
		must(t, err)
		for _, helm := range helms {
			made, err := template(t, helm, namespace, string(values))
			must(t, err)
			pod := made["Deployment vk/edge"]["spec"].(map[string]any)["template"].(map[string]any)
			annotations := pod["metadata"].(map[string]any)["annotations"].(map[string]any)
			container := pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
			args := container["args"].([]any)
			env := container["env"].([]any)
			for what, got := range map[string]any{
				"argument":      args[len(args)-1],
				"annotation":    annotations["b"],
				"variable":      env[len(env)-1].(map[string]any)["value"],
				"configuration": made["ConfigMap vk/edge"]["data"].(map[string]any)["provider.yaml"],
			} {
				if got != hostile {
					t.Errorf("%s: the %s is %q", helm, what, got)
				}
			}
			if annotations["a"] != "true" {
				t.Errorf("%s: an annotation is %v", helm, annotations["a"])
			}
		}
	}
}
