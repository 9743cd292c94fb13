//go:build integration

package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// reader does what docs/identity.md says, in a directory of its own, as the administrator of
// the cluster. Only the page's words in capitals are replaced.
type reader struct {
	dir   string
	env   []string
	words map[string]string
}

func newReader(t *testing.T, words map[string]string) *reader {
	t.Helper()
	dir, programs := t.TempDir(), t.TempDir()
	for program, arguments := range map[string]string{"virtual-kubelet": `"$@"`, "controlplane": `kubectl "$@"`} {
		path, err := filepath.Abs(filepath.Join(bin, program))
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ReplaceAll(program, "controlplane", "kubectl")
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\nexec "+path+" "+arguments+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// The ports of nodes of other tests are not those of these.
	env := append(cluster.Kubectl(t.Context()).Env, "PATH="+programs+":"+os.Getenv("PATH"), "KUBELET_PORT=0", "VKUBELET_POD_IP=127.0.0.1")
	words["SERVER"], words["ADDRESS"], words["PROVIDER"] = cluster.Config().Host, "127.0.0.1", "mock"
	return &reader{dir, env, words}
}

var (
	indented     = regexp.MustCompile(`(?m)^    (.*)\n|^\n`)
	continued    = regexp.MustCompile(`\\\n\s*`)
	nodeCommands = regexp.MustCompile(`(?m)^virtual-kubelet --.*$`)
)

// commands returns those of a section, without the ones that run nodes, which it returns, too.
func (r *reader) commands(t *testing.T, heading string) (script string, nodes []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	for _, line := range indented.FindAllStringSubmatch(section, -1) {
		script += line[1] + "\n"
	}
	script = continued.ReplaceAllString(script, "")
	for word, is := range r.words {
		script = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllString(script, is)
	}
	nodes = nodeCommands.FindAllString(script, -1)
	script = strings.TrimSpace(nodeCommands.ReplaceAllString(script, ""))
	if script == "" {
		t.Fatalf("docs/identity.md has no commands in %q", heading)
	}
	return script, nodes
}

// run runs commands, all of which have to succeed, and returns what they print.
func (r *reader) run(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\nprinted:\n%s", err, script, out)
	}
	return string(out)
}

// startNode runs the only command of a section that runs a node, and waits until the node is
// Ready.
func (r *reader) startNode(t *testing.T, nodes []string) *virtualNode {
	t.Helper()
	if len(nodes) != 1 {
		t.Fatalf("these commands of the section run nodes: %q", nodes)
	}
	n, since := &virtualNode{name: r.words["NAME"], log: &lockedbuffer.Buffer{}}, time.Now()
	n.launchIn(t, r.dir, r.env, "bash", "-c", "exec "+nodes[0])
	t.Cleanup(func() {
		n.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of %s:\n%s", n.name, n.log.String())
		}
		if err := client.CoreV1().Nodes().Delete(context.Background(), n.name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	n.waitReady(t, since)
	return n
}

// assertLogs fails the test if kubectl logs does not print what a pod of the node does.
func assertLogs(t *testing.T, n *virtualNode) {
	t.Helper()
	ns := newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	eventually(t, "kubectl logs prints what the pod does", func(ctx context.Context) (bool, string) {
		out, err := cluster.Kubectl(ctx, "-n", ns, "logs", "hello").CombinedOutput()
		return err == nil && strings.Contains(string(out), "hello"), string(out)
	})
}

// In a cluster that has none of the objects that kubeadm makes, and whose API server checks
// serving certificates, nodes come up with what the commands of docs/identity.md make.
func TestIdentityPageWithoutKubeadm(t *testing.T) {
	checkingServingCertificates(t)
	bindings, err := client.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	removed := 0
	for _, binding := range bindings.Items {
		if strings.HasPrefix(binding.Name, "controlplane:") { // what an installer makes
			removed++
			kubectl(t, "delete", "clusterrolebinding", binding.Name)
		}
	}
	if removed != 4 {
		t.Fatalf("the control plane had %d bindings of an installer, want 4", removed)
	}
	waitFor(t, "a pod's log may not be read", "no", "auth", "can-i", "get", "nodes/proxy", "--as", "kube-apiserver-kubelet-client")

	r := newReader(t, map[string]string{"CERTIFICATE": pki("apiserver-kubelet-client.crt"), "USER": "kube-apiserver-kubelet-client"})
	script, _ := r.commands(t, "### Once in a cluster")
	if out := r.run(t, script); !strings.Contains(out, "CN = "+r.words["USER"]) && !strings.Contains(out, "CN="+r.words["USER"]) {
		t.Errorf("the user of the API server is not in\n%s", out)
	}
	waitFor(t, "a pod's log may be read", "yes", "auth", "can-i", "get", "nodes/proxy", "--as", "kube-apiserver-kubelet-client")

	t.Run("token", func(t *testing.T) {
		r.words["NAME"], r.words["DIR"] = "by-token", filepath.Join(r.dir, "certificates")
		script, nodes := r.commands(t, "### With a bootstrap token")
		r.run(t, script)
		n := r.startNode(t, nodes)
		var requests []certificatesv1.CertificateSigningRequest
		eventually(t, "the node requests a serving certificate", func(context.Context) (bool, string) {
			requests = requestedBy(t, "system:node:"+n.name, certificatesv1.KubeletServingSignerName)
			return len(requests) > 0, ""
		})
		r.words["CSR"] = requests[0].Name
		r.run(t, "! virtual-kubelet doctor --nodename "+n.name+" > doctor && grep -F 'kubectl certificate approve "+requests[0].Name+"' doctor")
		script, _ = r.commands(t, "### Approve a serving certificate")
		if out := r.run(t, script); strings.Count(out, "system:node:"+n.name) != 3 || strings.Count(out, r.words["ADDRESS"]) != 2 {
			t.Errorf("what is to be compared is not in\n%s", out)
		}
		assertLogs(t, n)
	})
	t.Run("requested by another", func(t *testing.T) { r.testForeignRequests(t) })
	t.Run("requested", func(t *testing.T) {
		r.words["NAME"] = "by-request"
		script, nodes := r.commands(t, "### With certificates that you request")
		r.run(t, script)
		assertLogs(t, r.startNode(t, nodes))
		for _, file := range []string{"by-request.key", "by-request-serving.key", "by-request.kubeconfig", "bootstrap.kubeconfig"} {
			if info, err := os.Stat(filepath.Join(r.dir, file)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", file, info, err)
			}
		}
	})
}

// testForeignRequests has the commands of the page pasted, none of which ends the others, where
// somebody else has made requests of these names, with a key of their own.
func (r *reader) testForeignRequests(t *testing.T) {
	r.words["NAME"] = "taken"
	script, _ := r.commands(t, "### With certificates that you request")
	kubectl(t, "create", "clusterrolebinding", "mallory", "--clusterrole", "system:node-bootstrapper", "--user", "mallory")
	defer kubectl(t, "delete", "clusterrolebinding", "mallory")
	foreign := strings.NewReplacer("certificate approve", "get csr", "kubectl create", "kubectl --as mallory create",
		"kubectl --kubeconfig taken.kubeconfig", "kubectl --as mallory", "taken.", "foreign.", "taken-serving.", "foreign-serving.").Replace(script)
	for part := range strings.SplitSeq(foreign, "\nkubectl wait") {
		if i := strings.Index(part, "openssl req"); i >= 0 {
			r.run(t, part[i:])
		}
	}
	pasted := regexp.MustCompile(`(?m)^kubectl wait.*$`).ReplaceAllString(script, "")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", pasted)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, _ := cmd.CombinedOutput()
	for _, name := range []string{"taken-client", "taken-serving"} {
		request, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if len(request.Status.Conditions) > 0 {
			t.Errorf("a request of another is approved: %s\n%s", name, out)
		}
	}
}

// waitFor waits until kubectl prints a line.
func waitFor(t *testing.T, what, line string, args ...string) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) (bool, string) {
		out, _ := cluster.Kubectl(ctx, args...).Output() // auth can-i fails with "no"
		return strings.TrimSpace(string(out)) == line, string(out)
	})
}

// The page's first kubeconfig is that of a service account.
func TestIdentityPageWithAServiceAccount(t *testing.T) {
	r := newReader(t, map[string]string{"NAME": "by-account", "FILE": "", "DIR": ""})
	script, nodes := r.commands(t, "## To the API server")
	if len(nodes) != 2 { // the other one is that of a node with an identity of its own
		t.Fatalf("these commands of the section run nodes: %q", nodes)
	}
	rights := r.run(t, "virtual-kubelet config print-rbac --provider mock --nodename by-account; echo ---; virtual-kubelet config print-rbac --node-identity --nodename by-account")
	t.Cleanup(func() {
		cmd := cluster.Kubectl(context.Background(), "delete", "--ignore-not-found", "-f", "-")
		cmd.Stdin = strings.NewReader(rights)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	r.run(t, script)
	assertLogs(t, r.startNode(t, nodes[:1]))
}
