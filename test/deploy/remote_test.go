//go:build containers

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

const (
	remoteNode      = "virtual-kubelet" // of kubernetes-deployment.yaml
	remoteNamespace = "home-default"    // what stands for the namespace default
	accounts        = "kube-system"     // where kubernetes-deployment.yaml is installed
)

// testRemoteCluster installs kubernetes-deployment.yaml, with this cluster as the
// remote one: a pod of the virtual node runs on the host. It does not notice that
// the process that leads is deleted, nor that the remote cluster is reached in
// another way.
func (w *world) testRemoteCluster(t *testing.T) {
	w.runAsUser(t, w.withBusybox(t, block(t, "Pods in another cluster, or in this one", 0)))
	w.awaitLeader(t, "")
	stillReady := w.watchNodes(t, remoteNode)
	untouched := w.untouched(t)

	first := w.leader(t)
	w.kubectl(t, "-n", accounts, "delete", "pod", first)
	w.awaitLeader(t, first)
	untouched()

	second := w.leader(t)
	w.useToken(t)
	w.kubectl(t, "-n", accounts, "rollout", "restart", "deployment/virtual-kubelet")
	w.kubectl(t, "-n", accounts, "rollout", "status", "deployment/virtual-kubelet", "--timeout="+patience.String())
	w.awaitLeader(t, second)
	untouched()
	stillReady()
	w.removeAll(t)
}

// testFromTheRemoteCluster installs kubernetes-deployment.yaml in the remote cluster
// of another one, which has no nodes but the virtual one.
func (w *world) testFromTheRemoteCluster(t *testing.T) {
	w.home = startCluster(t, controlplane.Options{Address: w.containerd.Gateway()})
	w.runAsUser(t, w.withBusybox(t, block(t, "Pods in another cluster, or in this one", 2)))
	w.awaitLeader(t, "")
	stillReady := w.home.watchNodes(t, remoteNode)
	untouched := w.untouched(t)

	first := w.leader(t)
	w.kubectl(t, "-n", accounts, "delete", "pod", first)
	w.awaitLeader(t, first)
	untouched()
	stillReady()
	w.removeAll(t)
}

// withBusybox has commands use a busybox that is there.
func (w *world) withBusybox(t *testing.T, commands string) string {
	t.Helper()
	image := regexp.MustCompile(`--image=busybox:\S+`)
	if !image.MatchString(commands) {
		t.Fatalf("the README runs no busybox:\n%s", commands)
	}
	return image.ReplaceAllString(commands, "--image="+w.image(t, "/busybox:"))
}

// untouched checks that the pod hello runs on the host, and can be talked to at home
// and where it runs, now and, as the same pod, whenever it is called.
func (w *world) untouched(t *testing.T) (again func()) {
	t.Helper()
	want := w.look(t)
	if len(want.containers) != 1 || want.host != host {
		t.Fatalf("the pod runs in the containers %v on the node %s, want one on %s", want.containers, want.host, host)
	}
	again = func() {
		t.Helper()
		if got := w.look(t); !got.equal(want) {
			t.Errorf("the pod is %+v, and was %+v", got, want)
		}
		talkTo(t, w.home, "default")
		talkTo(t, w.cluster, remoteNamespace)
	}
	again()
	return again
}

// removeAll removes the pod and the Deployment.
func (w *world) removeAll(t *testing.T) {
	t.Helper()
	w.home.kubectl(t, "delete", "pod", "hello", "--grace-period=1", "--timeout="+patience.String())
	eventually(t, "no container is left", func() (bool, string) {
		left := w.containersOf(t, "hello")
		return len(left) == 0, fmt.Sprint(left)
	})
	w.kubectl(t, "delete", "-f", filepath.Join(manifests, "kubernetes-deployment.yaml"))
	w.kubectl(t, "-n", accounts, "delete", "secret", "virtual-kubelet")
}

// leader is the name of the pod that runs the virtual node.
func (w *world) leader(t *testing.T) string {
	t.Helper()
	lease, err := w.home.client.CoordinationV1().Leases(accounts).Get(t.Context(), remoteNode+"-leader", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	pod, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	return pod
}

// awaitLeader waits until a pod of the Deployment that is another one than before
// runs the virtual node: it is Ready, and reached at that pod.
func (w *world) awaitLeader(t *testing.T, before string) {
	t.Helper()
	began := time.Now()
	defer func() { t.Logf("after %v another pod leads", time.Since(began)) }()
	eventually(t, "a pod leads that is not "+before, func() (bool, string) {
		leader := w.leader(t)
		if leader == "" || leader == before {
			return false, "the leader is " + leader
		}
		pod, err := w.client.CoreV1().Pods(accounts).Get(t.Context(), leader, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		node, err := w.home.client.CoreV1().Nodes().Get(t.Context(), remoteNode, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		address := node.Status.Addresses[0].Address
		return pod.DeletionTimestamp == nil && address == pod.Status.PodIP && ready(node) == corev1.ConditionTrue,
			"the node is at " + address + ", its leader " + leader + " at " + pod.Status.PodIP
	})
}

// useToken has the remote cluster reached by its address, with a token, in the
// place of the pod's own service account.
func (w *world) useToken(t *testing.T) {
	t.Helper()
	w.runAsUser(t, block(t, "Pods in another cluster, or in this one", 1))
	text, err := os.ReadFile(filepath.Join(w.manifests, "kubernetes-deployment.yaml"))
	must(t, err)
	replacer := strings.NewReplacer("      inCluster: true\n", "", "# server: https://remote.example.com:6443", "server: "+w.Config().Host, "# caFile:", "caFile:", "# tokenFile:", "tokenFile:")
	w.apply(t, replacer.Replace(string(text)), "apply", "-f", "-")
}

// talkTo asks something of the pod, as it looks in a namespace.
func talkTo(t *testing.T, c cluster, namespace string) {
	t.Helper()
	if out := c.kubectl(t, "-n", namespace, "logs", "hello"); out != "hello from hello\n" {
		t.Errorf("the log of %s/hello is %q", namespace, out)
	}
	if out := c.kubectl(t, "-n", namespace, "exec", "hello", "--", "hostname"); out != "hello\n" {
		t.Errorf("exec in %s/hello printed %q", namespace, out)
	}
}
