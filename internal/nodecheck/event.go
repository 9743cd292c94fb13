package nodecheck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// aboutPod selects the events on a pod.
func aboutPod(pod *corev1.Pod) string {
	return fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String()
}

// FollowEvents waits until there is an event on a pod that is wanted; what says
// in words which that is.
func (s *Scope) FollowEvents(ctx context.Context, pod *corev1.Pod, what string, wanted func(*corev1.Event) bool) error {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	listWatch := cache.ToListWatcherWithWatchListSemantics(listwatch.Of(s.Client.CoreV1().Events(pod.Namespace),
		func(options *metav1.ListOptions) { options.FieldSelector = aboutPod(pod) }), s.Client)
	_, err := watchtools.UntilWithSync(ctx, listWatch, &corev1.Event{}, nil, func(change watch.Event) (bool, error) {
		event, ok := change.Object.(*corev1.Event)
		return ok && event.InvolvedObject.UID == pod.UID && wanted(event), nil
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("waiting until pod %s has %s: %w", pod.Name, what, err)
	}
	return nil
}

// eventsOf returns the events on a pod.
func (n *Node) eventsOf(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	list, err := n.Client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: aboutPod(pod)})
	if err != nil {
		return nil, err
	}
	var events []corev1.Event
	for _, event := range list.Items {
		if event.InvolvedObject.UID == pod.UID {
			events = append(events, event)
		}
	}
	return events, nil
}
