package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The kubelet's endpoints that are tested.
const (
	podsPath        = "/pods"
	runningPodsPath = "/runningpods/"
	statsPath       = "/stats/summary"
	metricsPath     = "/metrics/resource"
)

// getFromKubelet gets a path of the node's kubelet API through the API server.
func (s *EndToEndTestSuite) getFromKubelet(ctx context.Context, path string) ([]byte, error) {
	body, err := s.client.CoreV1().RESTClient().Get().
		AbsPath("/api/v1/nodes/" + url.PathEscape(s.cfg.NodeName) + "/proxy" + path).
		DoRaw(ctx)
	if err != nil {
		if statusCode(err) == http.StatusNotImplemented {
			err = fmt.Errorf("the provider does not implement this; see ShouldSkipTest: %w", err)
		}
		return nil, fmt.Errorf("get %s from the kubelet of node %s: %w", path, s.cfg.NodeName, err)
	}
	return body, nil
}

// listOnKubelet returns the pods that the kubelet lists at a path.
func (s *EndToEndTestSuite) listOnKubelet(ctx context.Context, path string) ([]corev1.Pod, error) {
	body, err := s.getFromKubelet(ctx, path)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%s of node %s is not a PodList: %w", path, s.cfg.NodeName, err)
	}
	return list.Items, nil
}

// listHeld returns the pods that the provider holds; where the kubelet keeps
// that to itself, those that it has taken from the API.
func (s *EndToEndTestSuite) listHeld(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := s.listOnKubelet(ctx, runningPodsPath)
	if apierrors.IsNotFound(err) {
		return s.listOnKubelet(ctx, podsPath)
	}
	return pods, err
}

// hasPod looks for a pod by its name: a provider may have UIDs of its own.
func hasPod(pods []corev1.Pod, wanted *corev1.Pod) bool {
	for i := range pods {
		if pods[i].Namespace == wanted.Namespace && pods[i].Name == wanted.Name {
			return true
		}
	}
	return false
}
