//go:build integration

package kubernetes_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/internal/metricsservertest"
)

// TestTop has two real metrics-servers: the one at home reads the virtual node, which
// reads the metrics API of the remote cluster. kubectl top shows the same at home as in
// the remote cluster.
func TestTop(t *testing.T) {
	t.Parallel() // it mostly waits
	home, remote := startCluster(t, metricsservertest.APIServerFlag), startCluster(t, metricsservertest.APIServerFlag)
	startMock(t, remote, "remote-1")
	metricsservertest.Start(t, remote.ControlPlane, "../..")
	metricsservertest.Start(t, home.ControlPlane, "../..")
	virtual := startVirtual(t, home.client, configOf(t, remoteOf(remote, remote.account("kubernetes-remote-rbac.yaml")), `
namespaces: {mapping: prefix, prefix: home-, create: true}
stats: metrics
`))
	w := &world{t: t, home: home, remote: remote}
	for _, name := range []string{"one", "two"} {
		w.pod(t, name, func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("40m"), corev1.ResourceMemory: resource.MustParse("30Mi")}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side", Image: "example.com/side:1"})
		})
	}
	top := func(c *cluster, args ...string) (map[string]string, error) {
		out, err := c.Kubectl(t.Context(), append([]string{"top"}, append(args, "--no-headers")...)...).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("kubectl top: %w: %s", err, out)
		}
		found := map[string]string{}
		for _, line := range figures.FindAllStringSubmatch(string(out), -1) {
			found[line[1]] = line[2] + " " + line[3]
		}
		return found, nil
	}
	for _, kind := range [][]string{{"pod"}, {"pod", "--containers"}} {
		eventually(t, "kubectl top says the same on both sides", func(context.Context) error {
			there, err := top(remote, append(kind, "-n", "home-default")...)
			if err != nil {
				return err
			}
			here, err := top(home, kind...)
			if err != nil {
				return err
			}
			if len(here) != len(there) || len(here) < 2 {
				return fmt.Errorf("%v at home, %v in the remote cluster", here, there)
			}
			for name, figure := range there {
				if !alike(here[name], figure) {
					return fmt.Errorf("%s is %s at home, %s in the remote cluster", name, here[name], figure)
				}
			}
			return nil
		})
	}
	eventually(t, "kubectl top node says what the pods use", func(context.Context) error {
		nodes, err := top(home, "node", homeNode)
		if err == nil && nodes[homeNode] == "" {
			err = fmt.Errorf("there are %v", nodes)
		}
		return err
	})
	virtual.end()
}

// figures matches the lines of kubectl top: a name, or that of a pod and a container,
// and CPU and memory, for a node with percentages.
var figures = regexp.MustCompile(`(?m)^(\S+(?: +[a-z]\S*)?) +(\d+)m +(?:\S+% +)?(\d+)Mi`)

// alike reports whether two figures are the same, except for rounding.
func alike(a, b string) bool {
	var cpu, memory [2]float64
	for i, text := range []string{a, b} {
		if n, err := fmt.Sscan(text, &cpu[i], &memory[i]); n != 2 || err != nil {
			return false
		}
	}
	return max(cpu[0]-cpu[1], cpu[1]-cpu[0]) <= 2 && max(memory[0]-memory[1], memory[1]-memory[0]) <= 2
}
