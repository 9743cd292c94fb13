package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestPodLifecycleGracefulDelete checks that a pod that is deleted is marked
// first, and leaves the API, and the kubelet's list, once it has stopped.
func (s *EndToEndTestSuite) TestPodLifecycleGracefulDelete(t *testing.T) {
	pod := s.createRunningPod(t, "graceful-delete")
	s.eventuallyHeld(t, pod, true)
	s.waitForPod(t, pod, "is marked as terminating, and then gone", func(ctx context.Context) error {
		return s.delete(ctx, pod, *pod.Spec.TerminationGracePeriodSeconds)
	}, terminating, gone)
	s.eventuallyHeld(t, pod, false)
}

// TestPodLifecycleForceDelete checks that a pod that is deleted with force
// leaves the API at once, and the kubelet's list soon after.
func (s *EndToEndTestSuite) TestPodLifecycleForceDelete(t *testing.T) {
	pod := s.createRunningPod(t, "force-delete")
	s.eventuallyHeld(t, pod, true)
	s.waitForPod(t, pod, "is gone", func(ctx context.Context) error {
		return s.delete(ctx, pod, 0)
	}, gone)
	s.eventuallyHeld(t, pod, false)
}

func (s *EndToEndTestSuite) delete(ctx context.Context, pod *corev1.Pod, graceSeconds int64) error {
	return s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, deleteOptions(pod, graceSeconds))
}

// eventuallyHeld waits until the kubelet lists a pod, or no longer does.
func (s *EndToEndTestSuite) eventuallyHeld(t *testing.T, pod *corev1.Pod, held bool) {
	t.Helper()
	what := "the kubelet no longer lists the pod"
	if held {
		what = "the kubelet lists the pod"
	}
	s.eventually(t, what, func(ctx context.Context) error {
		pods, err := s.listHeld(ctx)
		if err != nil {
			return err
		}
		if hasPod(pods, pod) != held {
			return notYet("it lists %d pods", len(pods))
		}
		return nil
	})
}
