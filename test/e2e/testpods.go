package e2e

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestGetPods checks that the kubelet lists a pod that runs: at /pods, and at
// /runningpods/ where that is served.
func (s *EndToEndTestSuite) TestGetPods(t *testing.T) {
	pod := s.createRunningPod(t, "get-pods")
	for _, path := range []string{podsPath, runningPodsPath} {
		s.eventually(t, "the pod is listed at "+path, func(ctx context.Context) error {
			pods, err := s.listOnKubelet(ctx, path)
			switch {
			case path == runningPodsPath && apierrors.IsNotFound(err):
				t.Logf("%s is not served here", path)
				return nil
			case err != nil:
				return err
			case !hasPod(pods, pod):
				return notYet("it is not among the %d pods there", len(pods))
			}
			return nil
		})
	}
}
