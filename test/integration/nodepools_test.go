//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// poolsProcess is a process whose nodes are in a file. The names of all its pools
// begin with its own.
type poolsProcess struct {
	name      string
	dir, file string
	log       *lockedBuffer
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
func startPools(t *testing.T, fields string) *poolsProcess {
	t.Helper()
	dir := t.TempDir()
	name := strings.ToLower(t.Name())
	p := &poolsProcess{name: name, dir: dir, file: filepath.Join(dir, "pools.yaml"), log: &lockedBuffer{}}
	if err := os.Symlink(filepath.Join("..data", "pools.yaml"), p.file); err != nil {
		t.Fatal(err)
	}
	p.write(t, "deleteNodes: true\n"+fields)
	user, kubeconfig := newAccountFor(t, dir, name, "", "--config", p.file)
	p.write(t, fields)
	process := exec.Command(filepath.Join(bin, "virtual-kubelet"), "--kubeconfig", kubeconfig, "--config", p.file, "--port", "0")
	process.Stdout, process.Stderr = p.log, p.log
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		(&virtualNode{process: process}).stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log:\n%s", p.log.String())
		}
		assertNothingForbidden(t, user)
		for node := range p.nodes(t, context.Background()) {
			if err := client.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	return p
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
// this state: "True" or "False" as they are Ready or not, the label tier, and the
// CPUs.
func (p *poolsProcess) await(t *testing.T, want map[string]string) {
	t.Helper()
	eventually(t, "the nodes are as the file has them", func(ctx context.Context) (bool, string) {
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
	p := startPools(t, `
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
pools:
- {name: NAME-a, count: 1, labels: {tier: back}, taints: [{key: example.com/new, effect: NoSchedule}], capacity: {cpu: 5}}
- {name: NAME-b, count: 3}
- {name: NAME-c, count: 1}
`)
	asNow := map[string]string{"c-0": "True 20", "a-0": "True back 5", "a-1": "False front 7", "b-0": "True 20", "b-1": "True 20", "b-2": "True 20"}
	p.await(t, asNow)
	if taints := p.nodes(t, t.Context())[p.name+"-a-0"].Spec.Taints; len(taints) != 1 || taints[0].Key != "example.com/new" {
		t.Errorf("the taints of a node whose pool has another one are %v", taints)
	}

	p.write(t, `
pools:
- {name: NAME-a, count: -1}
- {name: NAME-b, count: 1, provider: nope}
`)
	eventually(t, "the bad file is told of", func(context.Context) (bool, string) {
		log := p.log.String()
		return strings.Contains(log, "pools["+p.name+"-a].count") && strings.Contains(log, "pools["+p.name+"-b].provider"), log
	})
	p.await(t, asNow)

	// What comes next shows that the bad file was behind it, and nothing of it done.
	p.write(t, `
deleteNodes: true
pools:
- {name: NAME-a, count: 1, labels: {tier: back}, taints: [{key: example.com/new, effect: NoSchedule}], capacity: {cpu: 5}}
- {name: NAME-b, count: 2}
- {name: NAME-c, count: 1, os: windows, labels: {tier: anew}}
`)
	replaced := p.nodes(t, t.Context())[p.name+"-c-0"]
	delete(asNow, "b-2")
	asNow["c-0"] = "True anew 20"
	p.await(t, asNow)
	if now := p.nodes(t, t.Context())[replaced.Name]; now.Labels[corev1.LabelOSStable] != "windows" || now.UID != replaced.UID {
		t.Errorf("a node that was made anew with another OS is %+v, and was %+v", now.ObjectMeta, replaced.ObjectMeta)
	}
	if told := strings.Count(p.log.String(), "cannot be used"); told != 1 {
		t.Errorf("the bad file was told of %d times", told)
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
