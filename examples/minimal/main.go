// Command minimal is a whole virtual node whose provider has just the six
// methods of a node.PodLifecycleHandler, and logs. Its pods "run" at once, in memory.
package main

import (
	"context"
	"io"
	"log"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// provider holds its pods in a map.
type provider struct{ pods sync.Map }

func (p *provider) CreatePod(_ context.Context, pod *corev1.Pod) error {
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	p.pods.Store(pod.Namespace+"/"+pod.Name, pod)
	return nil
}

func (p *provider) UpdatePod(context.Context, *corev1.Pod) error { return nil }

func (p *provider) DeletePod(_ context.Context, pod *corev1.Pod) error {
	p.pods.Delete(pod.Namespace + "/" + pod.Name)
	return nil
}

func (p *provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, _ := p.pods.Load(namespace + "/" + name)
	found, _ := pod.(*corev1.Pod) // nil says that there is none
	return found, nil
}

func (p *provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	if pod, _ := p.GetPod(ctx, namespace, name); pod != nil {
		return &pod.Status, nil
	}
	return nil, nil
}

func (p *provider) GetPods(context.Context) (pods []*corev1.Pod, _ error) {
	p.pods.Range(func(_, pod any) bool {
		pods = append(pods, pod.(*corev1.Pod))
		return true
	})
	return pods, nil
}

// GetContainerLogs is what kubectl logs shows.
func (p *provider) GetContainerLogs(_ context.Context, namespace, name, _ string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("hello from " + namespace + "/" + name + "\n")), nil
}

func main() {
	n, err := nodeutil.NewNode("minimal", func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return nodeutil.AsProvider(&provider{}), nil, nil
	}, nodeutil.WithKubeletAPI())
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := n.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
