package main

import (
	"os"
	"strings"
	"testing"
)

func TestPrintRBAC(t *testing.T) {
	deployed, err := os.ReadFile("../../deploy/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ofKubernetes, err := os.ReadFile("../../deploy/kubernetes-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		args []string
		says []string
		not  []string
	}{
		{"as deployed", nil, []string{string(deployed)}, nil},
		{"as deployed for the kubernetes provider", []string{"--provider", "kubernetes"}, []string{string(ofKubernetes)}, nil},
		{"any node", []string{"--nodename", ""}, []string{"nodes/status"}, []string{"resourceNames"}},
		{"a node of a shared account", []string{"--nodename", "n1", "--service-account", "apps/vk"},
			[]string{"name: vk-n1\n", "- kind: ServiceAccount\n  name: vk\n  namespace: apps\n", "resourceNames:\n  - n1\n"}, []string{"kube-system\nrules"}},
		{"a provider that mounts volumes", []string{"--provider", "cri"}, []string{"serviceaccounts/token", "persistentvolumes\n", "runtimeclasses\n"}, nil},
		{"one namespace", []string{"--namespace", "apps"},
			[]string{"kind: Role\nmetadata:\n  name: virtual-kubelet\n  namespace: apps\nrules:\n- apiGroups:\n  - \"\"\n  resources:\n  - pods\n"}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			noCluster(t)
			status, stdout, stderr := execute(t, append([]string{"config", "print-rbac"}, c.args...)...)
			if status != 0 {
				t.Fatalf("exit status %d: %s", status, stderr)
			}
			for _, want := range c.says {
				if !strings.Contains(stdout, want) {
					t.Errorf("%q is missing in:\n%s", want, stdout)
				}
			}
			for _, unwanted := range c.not {
				if strings.Contains(stdout, unwanted) {
					t.Errorf("%q is in:\n%s", unwanted, stdout)
				}
			}
			if _, rest, _ := strings.Cut(stdout, "kind: ClusterRole\n"); c.what == "one namespace" && strings.Contains(rest, "secrets") {
				t.Errorf("secrets of all namespaces may be read:\n%s", rest)
			}
		})
	}
}

func TestPrintRBACRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--service-account", "vk"},
		{"--service-account", "a/b/c"},
		{"--service-account", "/vk"},
		{"--nodename", "No Name"},
		{"--namespace", "no/name"},
		{"--provider", "nope"},
		{"extra"},
	} {
		noCluster(t)
		status, stdout, stderr := execute(t, append([]string{"config", "print-rbac"}, args...)...)
		if status == 0 || stdout != "" || stderr == "" {
			t.Errorf("%q: exit status %d, %q, %q", args, status, stdout, stderr)
		}
	}
}
