package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
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
	pools := filepath.Join(t.TempDir(), "pools.yaml")
	writePools(t, pools, `{name: edge, deleteNodes: true, pools: [{name: a, count: 1}, {name: b, count: 0, provider: kubernetes, providerConfig: not-here.yaml}]}`)
	signed := filepath.Join(t.TempDir(), "signed.yaml")
	if err := os.WriteFile(signed, []byte("{apiVersion: virtual-kubelet.io/v1alpha1, kind: VirtualKubeletConfiguration, kubeletAPI: {servingCertificate: cluster}, clientConnection: {certDirectory: pki}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	const requests = "- apiGroups:\n  - certificates.k8s.io\n  resources:\n  - certificatesigningrequests\n  verbs:\n  - create\n  - get\n  - list\n  - watch\n"
	identity := filepath.Join(t.TempDir(), "identity.yaml")
	if err := os.WriteFile(identity, []byte("{apiVersion: virtual-kubelet.io/v1alpha1, kind: VirtualKubeletConfiguration, node: {name: n1}, provider: slurm, clientConnection: {bootstrapKubeconfig: bootstrap, certDirectory: pki}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(t.TempDir(), "both.yaml")
	if err := os.WriteFile(both, []byte("{apiVersion: virtual-kubelet.io/v1alpha1, kind: VirtualKubeletConfiguration, node: {name: n1}, provider: slurm, clientConnection: {kubeconfig: account, bootstrapKubeconfig: bootstrap, certDirectory: pki}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	const ofNode = "subjects:\n- apiGroup: rbac.authorization.k8s.io\n  kind: User\n  name: system:node:n1\n"
	for _, c := range []struct {
		what string
		args []string
		says []string
		not  []string
	}{
		{"pools whose nodes are deleted", []string{"--provider", "mock", "--config", pools}, []string{"- watch\n  - patch\n  - delete\n", "serviceaccounts/token", "resourceNames:\n  - kube-system\n  resources:\n  - namespaces\n"}, []string{"- virtual-kubelet\n", "persistentvolumes"}},
		{"as deployed", nil, []string{string(deployed)}, []string{"election"}},
		{"as deployed for the kubernetes provider", []string{"--provider", "kubernetes"}, []string{string(ofKubernetes)}, nil},
		{"one namespace of a provider that marks its objects", []string{"--provider", "eci", "--namespace", "apps"},
			[]string{"resourceNames:\n  - kube-system\n  resources:\n  - namespaces\n  verbs:\n  - get\n", "serviceaccounts/token", "persistentvolumeclaims\n", "persistentvolumes\n"}, []string{"runtimeclasses"}},
		{"any node", []string{"--nodename", ""}, []string{"nodes/status"}, []string{"resourceNames", "patch\n  - delete"}},
		{"a node of a shared account", []string{"--nodename", "n1", "--service-account", "apps/vk"},
			[]string{"name: apps:vk-n1\n", "- kind: ServiceAccount\n  name: vk\n  namespace: apps\n", "resourceNames:\n  - n1\n"}, []string{"kube-system\nrules"}},
		{"a provider that mounts volumes", []string{"--provider", "cri"}, []string{"serviceaccounts/token", "persistentvolumes\n", "runtimeclasses\n"}, nil},
		{"one of several processes for a node", []string{"--leader-elect", "--leader-elect-namespace", "vk"},
			[]string{"name: virtual-kubelet-election\n  namespace: vk\n", "resourceNames:\n  - virtual-kubelet-leader\n"}, []string{"- list\n  - update"}},
		{"one of several processes for many nodes", []string{"--shards", "--nodename", ""}, []string{"name: virtual-kubelet-election\n  namespace: kube-system\n", "- create\n  - list\n  - update\n  - delete\n"}, []string{"resourceNames"}},
		{"a node with an identity of its own", []string{"--node-identity", "--nodename", "n1", "--provider", "nomad"},
			[]string{"kind: ClusterRole\nmetadata:\n  name: virtual-kubelet.io:node:n1\nrules:\n- apiGroups:\n  - \"\"\n  resourceNames:\n  - kube-system\n  resources:\n  - namespaces\n  verbs:\n  - get\n---\n",
				"name: extension-apiserver-authentication-reader\n" + ofNode, "kind: ClusterRole\n  name: virtual-kubelet.io:node:n1\n" + ofNode}, []string{"ServiceAccount", "pods", "leases", "nodes"}},
		{"an account in place of an identity of its own", []string{"--config", both}, []string{"kind: ServiceAccount\n"}, []string{ofNode}},
		{"a node with an identity of its own, by its configuration", []string{"--config", identity}, []string{"- kube-system\n", ofNode}, []string{"ServiceAccount", "pods"}},
		{"a node with an identity of its own whose provider marks nothing", []string{"--node-identity", "--nodename", "n1", "--provider", "mock"},
			[]string{"name: extension-apiserver-authentication-reader\n" + ofNode}, []string{"ClusterRole"}},
		{"a certificate that the cluster signs", []string{"--serving-certificate", "cluster"}, []string{requests}, nil},
		{"a certificate that the cluster signs, by the configuration", []string{"--config", signed}, []string{requests}, nil},
		{"a certificate that the process signs", []string{"--config", signed, "--serving-certificate", "self-signed"}, []string{"nodes/status"}, []string{"certificates"}},
		{"one namespace", []string{"--namespace", "apps"},
			[]string{"kind: Role\nmetadata:\n  name: virtual-kubelet\n  namespace: apps\nrules:\n- apiGroups:\n  - \"\"\n  resources:\n  - pods\n",
				"kind: Role\nmetadata:\n  name: virtual-kubelet\n  namespace: default\nrules:\n- apiGroups:\n  - \"\"\n  resources:\n  - events\n"}, nil},
		{"the namespace of the control plane", []string{"--namespace", "kube-system"}, []string{"kind: RoleBinding\nmetadata:\n  name: virtual-kubelet-pods\n  namespace: kube-system\n"}, nil},
		{"the namespace of the nodes' leases", []string{"--namespace", "kube-node-lease"}, []string{"kind: Role\nmetadata:\n  name: virtual-kubelet-pods\n  namespace: kube-node-lease\n"}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			noCluster(t)
			status, stdout, stderr := execute(t, append([]string{"config", "print-rbac"}, c.args...)...)
			if status != 0 {
				t.Fatalf("exit status %d: %s", status, stderr)
			}
			printed := map[string]bool{}
			for text := range strings.SplitSeq(stdout, "---\n") {
				var object metav1.PartialObjectMetadata
				if err := yaml.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				key := object.Kind + " " + object.Namespace + "/" + object.Name
				if printed[key] {
					t.Errorf("%s is printed twice", key)
				}
				printed[key] = true
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

// What is applied for one account takes nothing from another one of the same name.
func TestPrintRBACOfTwoNamespaces(t *testing.T) {
	noCluster(t)
	var named [2]map[string]bool
	for i, account := range []string{"kube-system/virtual-kubelet", "virtual-kubelet/virtual-kubelet"} {
		status, stdout, stderr := execute(t, "config", "print-rbac", "--nodename", "", "--shards", "--service-account", account)
		if status != 0 {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
		named[i] = map[string]bool{}
		for text := range strings.SplitSeq(stdout, "---\n") {
			var object metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			named[i][object.Kind+" "+object.Namespace+"/"+object.Name] = true
		}
	}
	for object := range named[0] {
		if named[1][object] {
			t.Errorf("%s is printed for both accounts", object)
		}
	}
	if len(named[0]) != 8 {
		t.Errorf("the objects are %v, want 8", named[0])
	}
}

func TestPrintRBACRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--service-account", "vk"},
		{"--service-account", "a/b/c"},
		{"--service-account", "/vk"},
		{"--nodename", "No Name"},
		{"--namespace", "no/name"},
		{"--leader-elect-namespace", "no/name"},
		{"--provider", "nope"},
		{"--config", "nope.yaml"},
		{"extra"},
		{"--serving-certificate", "heaven"},
		{"--node-identity", "--nodename", ""},
		{"--node-identity", "--leader-elect"},
		{"--node-identity", "--service-account", "kube-system/vk"},
	} {
		noCluster(t)
		status, stdout, stderr := execute(t, append([]string{"config", "print-rbac"}, args...)...)
		if status == 0 || stdout != "" || stderr == "" {
			t.Errorf("%q: exit status %d, %q, %q", args, status, stdout, stderr)
		}
	}
}

// writePools writes a file of node pools; fields are what it holds beside its
// type, in YAML's flow style.
func writePools(t *testing.T, path, fields string) {
	t.Helper()
	content := "{apiVersion: virtual-kubelet.io/v1alpha1, kind: NodePools, " + strings.TrimPrefix(fields, "{") + "\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
