//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Two nodes of one process are each the part of a remote cluster that their own
// configuration chooses. The remote cluster is this one, and its nodes are of the
// same process, too.
func TestRemotePools(t *testing.T) {
	name := strings.ToLower(t.Name())
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	admin := cluster.Config()
	writeKubeconfig(t, kubeconfig, &clientcmdapi.AuthInfo{ClientCertificate: admin.CertFile, ClientKey: admin.KeyFile, ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData, Token: admin.BearerToken})
	for side, cpus := range map[string]int{"a": 7, "b": 5} {
		config := fmt.Sprintf(`
apiVersion: kubernetes.virtual-kubelet.io/v1
kind: RemoteCluster
cluster: %[1]s
remote: {kubeconfig: %[2]s}
namespaces: {mapping: prefix, prefix: %[3]s-, create: true}
scheduling: {nodeSelector: {tier: %[1]s-%[3]s}}
capacity: {resources: {cpu: %[4]d}}
`, name, kubeconfig, side, cpus)
		if err := os.WriteFile(filepath.Join(dir, side+".yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hosts := `
pools:
- {name: NAME-host-a, count: 1, labels: {tier: NAME-a}, capacity: {cpu: 7}, taints: []}
- {name: NAME-host-b, count: 1, labels: {tier: NAME-b}, capacity: {cpu: 5}, taints: []}
`
	far := func(side string) string {
		return fmt.Sprintf("- {name: NAME-far-%[2]s, count: 1, provider: kubernetes, providerConfig: %[1]s/%[2]s.yaml}\n", dir, side)
	}
	p := startPools(t, hosts+far("a")+far("b"))
	ready := map[string]string{"host-a-0": "True " + name + "-a 7", "host-b-0": "True " + name + "-b 5", "far-a-0": "True 7", "far-b-0": "True 5"}
	p.await(t, ready)

	ns := newNamespace(t)
	remotes := map[string]*corev1.Pod{}
	for _, side := range []string{"a", "b"} {
		createPod(t, ns, "on-"+side, onNode(name+"-far-"+side+"-0"), nil)
		waitForPhase(t, ns, "on-"+side, corev1.PodRunning)
		remote, err := client.CoreV1().Pods(side+"-"+ns).Get(t.Context(), "on-"+side, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := name + "-host-" + side + "-0"; remote.Spec.NodeName != want || remote.Labels["home.virtual-kubelet.io/node"] != name+"-far-"+side+"-0" {
			t.Errorf("the remote pod is on %s with %v, want %s", remote.Spec.NodeName, remote.Labels, want)
		}
		if out := kubectl(t, "-n", ns, "exec", "on-"+side, "--", "echo", "far"); out != "far\n" {
			t.Errorf("exec printed %q", out)
		}
		remotes[side] = remote
	}

	// What one node does not do any more is no concern of the other, nor of pods.
	p.write(t, hosts+far("a"))
	gone := map[string]string{"host-a-0": ready["host-a-0"], "host-b-0": ready["host-b-0"], "far-a-0": "True 7", "far-b-0": "False 5"}
	p.await(t, gone)
	kubectl(t, "-n", ns, "delete", "pod", "on-a", "--timeout=60s")
	left := func(ctx context.Context) (sides []string) {
		for side, pod := range remotes {
			if now, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err == nil && now.UID == pod.UID {
				sides = append(sides, side)
			}
		}
		return sides
	}
	if sides := left(t.Context()); fmt.Sprint(sides) != "[b]" {
		t.Errorf("remote pods are left of %v, want that of b", sides)
	}
	p.write(t, hosts+far("a")+far("b"))
	p.await(t, ready)
	kubectl(t, "-n", ns, "delete", "pod", "on-b", "--timeout=60s")
	eventually(t, "no remote pod is left", func(ctx context.Context) (bool, string) {
		sides := left(ctx)
		return len(sides) == 0, fmt.Sprint(sides)
	})
	for _, side := range []string{"a", "b"} {
		kubectl(t, "delete", "namespace", side+"-"+ns, "--wait=false")
	}
}
