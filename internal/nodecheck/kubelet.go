package nodecheck

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The kubelet's endpoints that are checked.
const (
	PodsPath        = "/pods"
	RunningPodsPath = "/runningpods/"
	statsPath       = "/stats/summary"
	metricsPath     = "/metrics/resource"
)

func (n *Node) proxyPath(path string) string {
	return "/api/v1/nodes/" + url.PathEscape(n.Name) + "/proxy" + path
}

// GetFromKubelet gets a path of the node's kubelet API through the API server.
func (n *Node) GetFromKubelet(ctx context.Context, path string) ([]byte, error) {
	body, err := n.Client.CoreV1().RESTClient().Get().AbsPath(n.proxyPath(path)).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get %s from the kubelet of node %s: %w", path, n.Name, err)
	}
	return body, nil
}

// ListOnKubelet returns the pods that the kubelet lists at a path.
func (n *Node) ListOnKubelet(ctx context.Context, path string) ([]corev1.Pod, error) {
	body, err := n.GetFromKubelet(ctx, path)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%s of node %s is not a PodList: %w", path, n.Name, err)
	}
	return list.Items, nil
}

// ListHeld returns the pods that the provider holds; where the kubelet keeps
// that to itself, those that it has taken from the API.
func (n *Node) ListHeld(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := n.ListOnKubelet(ctx, RunningPodsPath)
	if apierrors.IsNotFound(err) {
		return n.ListOnKubelet(ctx, PodsPath)
	}
	return pods, err
}

// FindPod looks for a pod by its name, since a provider may have UIDs of its
// own. It returns nil if there is none.
func FindPod(pods []corev1.Pod, wanted *corev1.Pod) *corev1.Pod {
	for i := range pods {
		if pods[i].Namespace == wanted.Namespace && pods[i].Name == wanted.Name {
			return &pods[i]
		}
	}
	return nil
}

// WaitHeld waits until the kubelet lists a pod, or no longer does.
func (n *Node) WaitHeld(ctx context.Context, pod *corev1.Pod, held bool) error {
	err := n.Poll(ctx, func(ctx context.Context) error {
		pods, err := n.ListHeld(ctx)
		if err != nil {
			return err
		}
		if (FindPod(pods, pod) != nil) != held {
			return fmt.Errorf("it lists %d pods", len(pods))
		}
		return nil
	})
	if err == nil {
		return nil
	}
	if held {
		return fmt.Errorf("waiting until the kubelet lists pod %s: %w", pod.Name, err)
	}
	return fmt.Errorf("waiting until the kubelet no longer lists pod %s: %w", pod.Name, err)
}
