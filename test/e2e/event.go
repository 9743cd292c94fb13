package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// aboutPod selects the events on a pod.
func aboutPod(pod *corev1.Pod) string {
	return fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String()
}

// waitForEvent waits until there is an event with a reason on a pod.
func (s *EndToEndTestSuite) waitForEvent(t *testing.T, pod *corev1.Pod, reason string) {
	t.Helper()
	if err := s.followEvents(t.Context(), pod, reason); err != nil {
		t.Fatalf("waiting until pod %s/%s has an event %s: %v\n%s", pod.Namespace, pod.Name, reason, err, s.describe(pod))
	}
}

func (s *EndToEndTestSuite) followEvents(ctx context.Context, pod *corev1.Pod, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WatchTimeout)
	defer cancel()
	events := s.client.CoreV1().Events(pod.Namespace)
	listWatch := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = aboutPod(pod)
			return events.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = aboutPod(pod)
			return events.Watch(ctx, options)
		},
	}, s.client)
	_, err := watchtools.UntilWithSync(ctx, listWatch, &corev1.Event{}, nil, func(change watch.Event) (bool, error) {
		event, ok := change.Object.(*corev1.Event)
		return ok && event.InvolvedObject.UID == pod.UID && event.Reason == reason, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("not within %v", s.cfg.WatchTimeout)
	}
	return err
}
