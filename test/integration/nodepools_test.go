//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// poolsProcess is a process whose nodes are in a file. The names of all its pools
// begin with its own.
type poolsProcess struct {
	name       string
	dir, file  string
	user       string
	kubeconfig string
	args       []string
	process    *virtualNode // as it was started last
	log        *lockedbuffer.Buffer
}

// write has the file hold these fields, beside its type: each time a new directory
// takes the place of the last by a link, as with the files of a mounted ConfigMap.
func (p *poolsProcess) write(t *testing.T, fields string) {
	t.Helper()
	content := "apiVersion: virtual-kubelet.io/v1alpha1\nkind: NodePools\n" + strings.ReplaceAll(fields, "NAME", p.name)
	version, err := os.MkdirTemp(p.dir, "..")
	if err == nil {
		err = os.WriteFile(filepath.Join(version, "pools.yaml"), []byte(content), 0o600)
	}
	link := filepath.Join(p.dir, "..data")
	if err == nil {
		err = os.Symlink(version, link+"_tmp")
	}
	if err == nil {
		err = os.Rename(link+"_tmp", link)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startPools starts one with the rights that "virtual-kubelet config print-rbac"
// prints for a file that may delete nodes.
func startPools(t *testing.T, fields string, args ...string) *poolsProcess {
	t.Helper()
	dir := t.TempDir()
	name := strings.ToLower(t.Name())
	p := &poolsProcess{name: name, dir: dir, file: filepath.Join(dir, "pools.yaml"), log: &lockedbuffer.Buffer{}}
	if err := os.Symlink(filepath.Join("..data", "pools.yaml"), p.file); err != nil {
		t.Fatal(err)
	}
	p.write(t, "name: NAME\ndeleteNodes: true\n"+fields[strings.Index(fields, "pools:"):])
	p.user, p.kubeconfig = newAccountFor(t, dir, name, "", "--provider", "mock", "--config", p.file)
	p.write(t, fields)
	p.args = args
	p.start(t)
	t.Cleanup(func() {
		p.process.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log:\n%s", p.log.String())
		}
		assertNothingForbidden(t, p.user)
		for node := range p.nodes(t, context.Background()) {
			if err := client.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// start starts the process, again if it has ended.
func (p *poolsProcess) start(t *testing.T) {
	t.Helper()
	p.process = &virtualNode{log: p.log}
	p.process.launch(t, append([]string{"--kubeconfig", p.kubeconfig, "--provider", "mock", "--config", p.file, "--port", "0"}, p.args...))
}

// nodes are the Nodes of the process, by name.
func (p *poolsProcess) nodes(t *testing.T, ctx context.Context) map[string]corev1.Node {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]corev1.Node{}
	for _, node := range list.Items {
		if strings.HasPrefix(node.Name, p.name+"-") {
			nodes[node.Name] = node
		}
	}
	return nodes
}

// await waits until there are these nodes, by their names after the process's, in
// this state: whether they are Ready ("True", "False" or "Unknown"), the label tier, and the
// CPUs.
func (p *poolsProcess) await(t *testing.T, want map[string]string) {
	t.Helper()
	p.awaitWithin(t, patience, want)
}

func (p *poolsProcess) awaitWithin(t *testing.T, timeout time.Duration, want map[string]string) {
	t.Helper()
	eventuallyWithin(t, timeout, "the nodes are as the file has them", func(ctx context.Context) (bool, string) {
		got := map[string]string{}
		for name, node := range p.nodes(t, ctx) {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady {
					state := []string{string(c.Status), node.Labels["tier"], node.Status.Capacity.Cpu().String()}
					got[strings.TrimPrefix(name, p.name+"-")] = strings.Join(strings.Fields(strings.Join(state, " ")), " ")
				}
			}
		}
		return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprint(got)
	})
}

// Nodes come, go and change with the file, while the pods of those that stay go
// on, and a bad file changes nothing.
func TestNodePools(t *testing.T) {
	t.Parallel() // it waits most of the time
	p := startPools(t, `
name: NAME
pools:
- {name: NAME-a, count: 2, labels: {tier: front}, capacity: {cpu: 7}}
- {name: NAME-b, count: 1}
`)
	p.await(t, map[string]string{"a-0": "True front 7", "a-1": "True front 7", "b-0": "True 20"})
	ns := newNamespace(t)
	var before []*corev1.Pod
	for _, node := range []string{"a-0", "b-0"} {
		createPod(t, ns, "on-"+node, onNode(p.name+"-"+node), nil)
		before = append(before, waitForPhase(t, ns, "on-"+node, corev1.PodRunning))
	}

	p.write(t, `
name: NAME
pools:
- {name: NAME-a, count: 1, labels: {tier: back}, taints: [{key: example.com/new, effect: NoSchedule}], capacity: {cpu: 5}}
- {name: NAME-b, count: 3}
- {name: NAME-c, count: 1}
`)
	asNow := map[string]string{"c-0": "True 20", "a-0": "True back 5", "a-1": "False front 7", "b-0": "True 20", "b-1": "True 20", "b-2": "True 20"}
	p.await(t, asNow)
	taints := slices.DeleteFunc(p.nodes(t, t.Context())[p.name+"-a-0"].Spec.Taints, func(taint corev1.Taint) bool {
		return strings.HasPrefix(taint.Key, "node.kubernetes.io/") // the node lifecycle controller's, which may be late
	})
	if len(taints) != 1 || taints[0].Key != "example.com/new" {
		t.Errorf("the taints of a node whose pool has another one are %v", taints)
	}

	p.write(t, `
name: NAME
pools:
- {name: NAME-a, count: -1}
- {name: NAME-b, count: 1, provider: nope}
`)
	eventually(t, "the bad file is reported", func(context.Context) (bool, string) {
		log := p.log.String()
		return strings.Contains(log, "pools["+p.name+"-a].count") && strings.Contains(log, "pools["+p.name+"-b].provider"), log
	})
	p.await(t, asNow)

	// What comes next shows that the bad file was behind it, and nothing of it done.
	p.write(t, `
name: NAME
deleteNodes: true
pools:
- {name: NAME-a, count: 1, labels: {tier: back}, taints: [{key: example.com/new, effect: NoSchedule}], capacity: {cpu: 5}}
- {name: NAME-b, count: 2}
- {name: NAME-c, count: 1, os: windows, labels: {tier: again}}
`)
	replaced := p.nodes(t, t.Context())[p.name+"-c-0"]
	delete(asNow, "b-2")
	delete(asNow, "a-1") // which went before
	asNow["c-0"] = "True again 20"
	p.await(t, asNow)
	if now := p.nodes(t, t.Context())[replaced.Name]; now.Labels[corev1.LabelOSStable] != "windows" || now.UID != replaced.UID {
		t.Errorf("a node that was made again with another OS is %+v, and was %+v", now.ObjectMeta, replaced.ObjectMeta)
	}
	if count := strings.Count(p.log.String(), "cannot be used"); count != 1 {
		t.Errorf("the bad file was reported %d times", count)
	}

	for _, pod := range before {
		now, err := client.CoreV1().Pods(ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if now.UID != pod.UID || !equality.Semantic.DeepEqual(now.Status.ContainerStatuses, pod.Status.ContainerStatuses) {
			t.Errorf("pod %s has changed meanwhile, from %+v to %+v", pod.Name, pod.Status, now.Status)
		}
		if out := kubectl(t, "-n", ns, "exec", pod.Name, "--", "echo", "a"); out != "a\n" {
			t.Errorf("exec in %s printed %q", pod.Name, out)
		}
	}
	createPod(t, ns, "on-b-1", onNode(p.name+"-b-1"), nil)
	waitForPhase(t, ns, "on-b-1", corev1.PodRunning)
	kubectl(t, "-n", ns, "delete", "pods", "--all", "--timeout=60s")
}

// Nodes that went from the file while no process ran are deleted, with their pods in
// the API, and nothing else is: not what others have made, and no pod in the provider.
func TestNodesThatWentWhileNoProcessRan(t *testing.T) {
	t.Parallel() // it waits most of the time
	name := strings.ToLower(t.Name())
	journal := filepath.Join(t.TempDir(), "journal")
	config := fmt.Sprintf("providerConfig: {%[1]s-a-0: {journal: %[2]s-a}, %[1]s-b-1: {journal: %[2]s}}", name, journal)
	p := startPools(t, `
name: NAME
deleteNodes: true
pools:
- {name: NAME-a, count: 1, `+config+`}
- {name: NAME-b, count: 2, `+config+`}
`)
	p.await(t, map[string]string{"a-0": "True 20", "b-0": "True 20", "b-1": "True 20"})
	ns := newNamespace(t)
	createPod(t, ns, "stays", onNode(p.name+"-a-0"), nil)
	createPod(t, ns, "goes", onNode(p.name+"-b-1"), nil)
	stays, goes := waitForPhase(t, ns, "stays", corev1.PodRunning), waitForPhase(t, ns, "goes", corev1.PodRunning)
	for other, label := range map[string]string{"by-hand": p.name, "other-file": p.name + "-2"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.name + "-" + other, Labels: map[string]string{"virtual-kubelet.io/node-pools": label}}}
		if other == "other-file" {
			node.Annotations = map[string]string{"virtual-kubelet.io/owned": `{"labels":["virtual-kubelet.io/node-pools"]}`}
		}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	p.process.stop(t, syscall.SIGKILL)
	p.write(t, `
name: NAME
deleteNodes: true
pools:
- {name: NAME-a, count: 1, `+config+`}
- {name: NAME-b, count: 1, `+config+`}
`)
	p.start(t)
	// The control plane needs a minute to see that nobody keeps the Node, and the
	// process waits for another one.
	p.awaitWithin(t, 2*patience, map[string]string{"a-0": "True 20", "b-0": "True 20", "by-hand": "Unknown 0", "other-file": "Unknown 0"})
	waitForGone(t, goes)
	if now, err := client.CoreV1().Pods(ns).Get(t.Context(), "stays", metav1.GetOptions{}); err != nil || now.UID != stays.UID || now.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod of a node that stays: %v, %v", now, err)
	}
	if done := (&virtualNode{journal: journal}).journalOf(t, ns); len(done) != 1 || done[0].UID != string(goes.UID) {
		t.Errorf("the provider has done %v, want only to create the pod", done)
	}
	if log := p.log.String(); !strings.Contains(log, "its workloads keep running in the provider") {
		t.Error("the log does not warn of what is left in the provider")
	}
	for _, request := range requestsOf(t, p.user) {
		if request.Verb == "delete" && request.ObjectRef.Resource == "nodes" && request.ObjectRef.Name != p.name+"-b-1" {
			t.Errorf("it has asked to delete Node %s", request.ObjectRef.Name)
		}
	}
}

// Without deleteNodes a process has no right more than one of --nodes.
func TestRightsToDeleteNodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pools.yaml")
	of := func(fields string) map[right]bool {
		content := "apiVersion: virtual-kubelet.io/v1alpha1\nkind: NodePools\npools: []\n" + fields
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		rights := map[right]bool{}
		for _, r := range rightsOf(t, printRBAC(t, "vk", "", "--provider", "mock", "--config", file)) {
			rights[r] = true
		}
		return rights
	}
	without, with := of("name: a\n"), of("name: a\ndeleteNodes: true\n")
	added := right{resource: "nodes", verb: "delete"}
	if without[added] || !with[added] || len(with) != len(without)+1 {
		t.Errorf("deleteNodes makes %d rights of %d, want one more, to %s", len(with), len(without), added)
	}
}
