//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// patience is how long a test waits for what should take a moment.
const patience = 120 * time.Second

// virtualNode is a virtual-kubelet process with the mock provider, whose pods
// are in a journal that outlives the process.
type virtualNode struct {
	name       string
	user       string
	kubeconfig string
	journal    string
	config     string
	args       []string
	env        []string
	process    *daemon.Process
	log        *lockedbuffer.Buffer
}

// startNode starts a node for the test, with a service account that has the
// rights that "virtual-kubelet config print-rbac" prints, and waits until it is
// Ready. A request that is forbidden fails the test.
func startNode(t *testing.T, args ...string) *virtualNode {
	t.Helper()
	dir := t.TempDir()
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	n := &virtualNode{
		name:    name,
		journal: filepath.Join(dir, "journal"),
		config:  filepath.Join(dir, "mock.json"),
		args:    args,
		log:     &lockedbuffer.Buffer{},
	}
	n.user, n.kubeconfig = newAccount(t, dir, name)
	config := fmt.Sprintf(`{%q: {"cpu": "100", "memory": "100Gi", "pods": "1000", "journal": %q}}`, name, n.journal)
	if err := os.WriteFile(n.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	t.Cleanup(func() {
		n.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, n.log.String())
		}
		assertNothingForbidden(t, n.user)
		err := client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return n
}

func (n *virtualNode) start(t *testing.T) {
	t.Helper()
	args := append([]string{"--kubeconfig", n.kubeconfig, "--nodename", n.name, "--port", "0",
		"--provider", "mock", "--provider-config", n.config, "--log-level", "debug"}, n.args...)
	since, before := time.Now(), n.timesReady()
	n.launch(t, args, n.env...)
	n.waitReady(t, since)
	// The Node is Ready by the word of an earlier process, too.
	eventually(t, "the process says that its node is ready", func(context.Context) (bool, string) {
		return n.timesReady() > before, "it does not"
	})
}

// launch starts the process.
func (n *virtualNode) launch(t *testing.T, args []string, env ...string) {
	t.Helper()
	n.launchIn(t, "", append(os.Environ(), env...), filepath.Join(bin, "virtual-kubelet"), args...)
}

// launchIn starts the process by a command, in a directory and with an environment.
func (n *virtualNode) launchIn(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	var err error
	if n.process, err = daemon.Launch(cmd, n.log); err != nil {
		t.Fatal(err)
	}
}

// timesReady returns how many of the node's processes reported it as ready.
func (n *virtualNode) timesReady() int { return strings.Count(n.log.String(), "Node is ready") }

// waitReady waits until the node says, after the given time, that it is Ready.
func (n *virtualNode) waitReady(t *testing.T, since time.Time) {
	t.Helper()
	n.waitReadyWithin(t, patience, since)
}

func (n *virtualNode) waitReadyWithin(t *testing.T, timeout time.Duration, since time.Time) {
	t.Helper()
	eventuallyWithin(t, timeout, "the node is Ready", func(ctx context.Context) (bool, string) {
		node, err := client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				fresh := c.LastHeartbeatTime.Time.After(since.Add(-time.Second))
				return fresh && c.Status == corev1.ConditionTrue, fmt.Sprintf("%+v", c)
			}
		}
		return false, "no Ready condition"
	})
}

func (n *virtualNode) stop(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := n.process.Stop(signal); err != nil {
		t.Errorf("virtual-kubelet did not end well: %v", err)
	}
}

// entry is a line of the mock provider's journal.
type entry struct{ Op, UID string }

// journalOf returns what the provider did about the pods of a namespace.
func (n *virtualNode) journalOf(t *testing.T, namespace string) []entry {
	t.Helper()
	content, err := os.ReadFile(n.journal)
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for line := range bytes.Lines(content) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var record struct {
			Event string     `json:"event"`
			Pod   corev1.Pod `json:"pod"`
		}
		if err := json.Unmarshal(line, &record); err != nil {
			continue // half a line, of a process that was killed
		}
		if record.Pod.Namespace == namespace {
			entries = append(entries, entry{record.Event, string(record.Pod.UID)})
		}
	}
	return entries
}

// createsByUID counts how often each pod was created in the provider.
func createsByUID(entries []entry) map[string]int {
	creates := map[string]int{}
	for _, e := range entries {
		if e.Op == "create" {
			creates[e.UID]++
		}
	}
	return creates
}

// newNamespace makes a namespace for the test, and waits for its default
// service account.
func newNamespace(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the default service account exists", func(ctx context.Context) (bool, string) {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return ns.Name
}

// podSpec is a pod that only the given node takes.
func podSpec(n *virtualNode) corev1.PodSpec {
	return corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelHostname: n.name},
		Tolerations:  []corev1.Toleration{{Key: "virtual-kubelet.io/provider", Operator: corev1.TolerationOpExists}},
		Containers:   []corev1.Container{{Name: "c", Image: "test"}},
	}
}

func createPod(t *testing.T, namespace, name string, spec corev1.PodSpec, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       spec,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func waitForPhase(t *testing.T, namespace, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, fmt.Sprintf("pod %s is %s", name, phase), func(ctx context.Context) (ok bool, state string) {
		var err error
		if pod, err = client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pod.Status.Phase == phase, fmt.Sprintf("%+v", pod.Status)
	})
	return pod
}

func waitForGone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %s is gone", pod.Name), func(ctx context.Context) (bool, string) {
		now, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID, fmt.Sprintf("%v %+v", err, now)
	})
}

// eventually polls until a condition holds; a test that would wait longer than
// patience fails with the last state.
func eventually(t *testing.T, what string, condition func(context.Context) (bool, string)) {
	t.Helper()
	eventuallyWithin(t, patience, what, condition)
}

func eventuallyWithin(t *testing.T, timeout time.Duration, what string, condition func(context.Context) (bool, string)) {
	t.Helper()
	var state string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, func(ctx context.Context) (ok bool, _ error) {
		ok, state = condition(ctx)
		return ok, nil
	})
	if err != nil {
		t.Fatalf("waited for: %s: %v; last seen: %s", what, err, state)
	}
}
