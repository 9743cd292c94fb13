package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

// newPod is a pod for the node, whose name starts with prefix.
func (s *EndToEndTestSuite) newPod(prefix string, env ...corev1.EnvVar) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "vk-e2e-" + prefix + "-",
			Namespace:    s.cfg.Namespace,
			Labels:       map[string]string{"app.kubernetes.io/managed-by": "virtual-kubelet-e2e"},
		},
		Spec: corev1.PodSpec{
			NodeName:                      s.cfg.NodeName,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: ptr.To[int64](10),
			AutomountServiceAccountToken:  ptr.To(false),
			Containers:                    []corev1.Container{{Name: "main", Image: s.cfg.Image, Env: env}},
		},
	}
}

// createPod creates a pod, and has it removed when the test ends.
func (s *EndToEndTestSuite) createPod(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pods := s.client.CoreV1().Pods(pod.Namespace)
	created, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a pod on node %s: %v", s.cfg.NodeName, err)
	}
	t.Logf("created pod %s/%s", created.Namespace, created.Name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.WatchTimeout)
		defer cancel()
		if err := pods.Delete(ctx, created.Name, deleteOptions(created, 0)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Errorf("remove pod %s/%s: %v", created.Namespace, created.Name, err)
		}
	})
	return created
}

// createRunningPod creates a pod and waits until it runs.
func (s *EndToEndTestSuite) createRunningPod(t *testing.T, prefix string) *corev1.Pod {
	t.Helper()
	return s.waitForPod(t, s.createPod(t, s.newPod(prefix)), "runs", nil, running)
}

// deleteOptions are those for this very pod, not another of its name.
func deleteOptions(pod *corev1.Pod, graceSeconds int64) metav1.DeleteOptions {
	return metav1.DeleteOptions{
		GracePeriodSeconds: &graceSeconds,
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	}
}

// podCondition looks at a pod after a change. An error ends the wait.
type podCondition func(pod *corev1.Pod, deleted bool) (bool, error)

var errDeleted = errors.New("it was deleted")

// running is met by a pod that runs.
func running(pod *corev1.Pod, deleted bool) (bool, error) {
	switch {
	case deleted:
		return false, errDeleted
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return false, errors.New("it has ended")
	}
	return pod.Status.Phase == corev1.PodRunning, nil
}

// terminating is met by a pod whose deletion has begun. It can be over as well
// by the time at which it is seen.
func terminating(pod *corev1.Pod, deleted bool) (bool, error) {
	switch {
	case pod.DeletionTimestamp != nil:
		return true, nil
	case deleted:
		return false, errors.New("it left the API without ever having had a deletionTimestamp")
	}
	return false, nil
}

// gone is met by a pod that has left the API.
func gone(_ *corev1.Pod, deleted bool) (bool, error) { return deleted, nil }

// waitForPod follows a pod until it has met the conditions, one after the
// other, and returns it. It fails t when that takes too long. once, if not nil,
// is called as soon as the pod is being followed.
func (s *EndToEndTestSuite) waitForPod(t *testing.T, pod *corev1.Pod, what string, once func(context.Context) error, conditions ...podCondition) *corev1.Pod {
	t.Helper()
	last, err := s.followPod(t.Context(), pod, once, conditions...)
	if err != nil {
		t.Fatalf("waiting until pod %s/%s %s: %v\n%s", pod.Namespace, pod.Name, what, err, s.describe(last))
	}
	return last
}

func (s *EndToEndTestSuite) followPod(ctx context.Context, pod *corev1.Pod, once func(context.Context) error, conditions ...podCondition) (last *corev1.Pod, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WatchTimeout)
	defer cancel()
	last = pod
	steps := make([]watchtools.ConditionFunc, 0, len(conditions))
	for _, condition := range conditions {
		steps = append(steps, func(event watch.Event) (bool, error) {
			seen, ok := event.Object.(*corev1.Pod)
			if !ok || seen.UID != pod.UID {
				return false, nil
			}
			last = seen
			return condition(seen, event.Type == watch.Deleted)
		})
	}
	_, err = watchtools.UntilWithSync(ctx, s.podListWatch(pod), &corev1.Pod{}, func(cache.Store) (bool, error) {
		if once == nil {
			return false, nil
		}
		return false, once(ctx)
	}, steps...)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("not within %v", s.cfg.WatchTimeout)
	}
	return last, err
}

func (s *EndToEndTestSuite) podListWatch(pod *corev1.Pod) cache.ListerWatcher {
	pods := s.client.CoreV1().Pods(pod.Namespace)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			return pods.Watch(ctx, options)
		},
	}, s.client)
}

// describe is what a person needs to know of a pod that did not do as it should.
func (s *EndToEndTestSuite) describe(pod *corev1.Pod) string {
	var text strings.Builder
	fmt.Fprintf(&text, "pod %s/%s: phase %s, reason %q, message %q\n", pod.Namespace, pod.Name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	for _, c := range pod.Status.ContainerStatuses {
		fmt.Fprintf(&text, "container %s: %s\n", c.Name, c.State.String())
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.WatchTimeout)
	defer cancel()
	events, err := s.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: aboutPod(pod)})
	if err != nil {
		fmt.Fprintf(&text, "its events cannot be read: %v\n", err)
		return text.String()
	}
	for _, event := range events.Items {
		if event.InvolvedObject.UID == pod.UID {
			fmt.Fprintf(&text, "event %s %s: %s\n", event.Type, event.Reason, event.Message)
		}
	}
	return text.String()
}
