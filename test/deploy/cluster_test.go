//go:build containers

package deploy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// cluster is a control plane.
type cluster struct {
	*controlplane.ControlPlane
	client kubernetes.Interface
}

func startCluster(t *testing.T, options controlplane.Options) cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	options.Binary = filepath.Join(bin, "controlplane")
	plane, err := controlplane.Start(ctx, options)
	must(t, err)
	t.Cleanup(func() { must(t, plane.Stop()) })
	client, err := kubernetes.NewForConfig(plane.Config())
	must(t, err)
	return cluster{plane, client}
}

// kubectl runs kubectl to its end, and returns what it prints; it has to succeed.
func (c cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return c.apply(t, "", args...)
}

// apply is kubectl with an input.
func (c cluster) apply(t *testing.T, input string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := c.Kubectl(ctx, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %q: %v: %s", args, err, out)
	}
	return string(out)
}

// awaitReady waits until a node is there and Ready.
func (c cluster) awaitReady(t *testing.T, name string) {
	t.Helper()
	eventually(t, "node "+name+" is Ready", func() (bool, string) {
		node, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return ready(node) == corev1.ConditionTrue, fmt.Sprint(node.Status.Conditions)
	})
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// watchNodes looks whether nodes whose names begin so are Ready all the time, until
// the function that it returns is called.
func (c cluster) watchNodes(t *testing.T, prefix string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, err := c.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	must(t, err)
	done := make(chan struct{})
	var lapses []string
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok && ctx.Err() == nil || ok && strings.HasPrefix(node.Name, prefix) && ready(node) != corev1.ConditionTrue {
				lapses = append(lapses, fmt.Sprintf("%s %v", event.Type, event.Object))
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		<-done
		if len(lapses) > 0 {
			t.Errorf("nodes were not Ready all the time: %d times, at first %s", len(lapses), lapses[0])
		}
	}
}

// keepLogs keeps those of Virtual Kubelet's pods.
func (c cluster) keepLogs(t *testing.T) {
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(context.Background(), metav1.ListOptions{LabelSelector: "app=virtual-kubelet"})
	must(t, err)
	for _, pod := range pods.Items {
		out, _ := c.Kubectl(context.Background(), "-n", pod.Namespace, "logs", pod.Name).CombinedOutput()
		must(t, os.WriteFile(filepath.Join(t.ArtifactDir(), pod.Namespace+"-"+pod.Name+"-"+pod.Status.PodIP+".log"), out, 0o600))
	}
}
