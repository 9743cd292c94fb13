package nodecheck

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// PodCondition looks at a pod after a change. An error ends the wait.
type PodCondition func(pod *corev1.Pod, deleted bool) (bool, error)

var errDeleted = errors.New("it was deleted")

// Running is met by a pod that runs.
func Running(pod *corev1.Pod, deleted bool) (bool, error) {
	switch {
	case deleted:
		return false, errDeleted
	case ended(pod):
		return false, errors.New("it has ended")
	}
	return pod.Status.Phase == corev1.PodRunning, nil
}

// Ready is met by a pod that is ready.
func Ready(pod *corev1.Pod, deleted bool) (bool, error) {
	if met, err := Running(pod, deleted); !met {
		return false, err
	}
	return conditionStatus(pod, corev1.PodReady) == corev1.ConditionTrue, nil
}

// ends is met by a pod that has ended in the given phase.
func ends(phase corev1.PodPhase) PodCondition {
	return func(pod *corev1.Pod, deleted bool) (bool, error) {
		switch {
		case deleted:
			return false, errDeleted
		case ended(pod) && pod.Status.Phase != phase:
			return false, fmt.Errorf("it has ended as %s", pod.Status.Phase)
		}
		return pod.Status.Phase == phase, nil
	}
}

// Terminating is met by a pod whose deletion has begun. It can be over as well
// by the time at which it is seen.
func Terminating(pod *corev1.Pod, deleted bool) (bool, error) {
	switch {
	case pod.DeletionTimestamp != nil:
		return true, nil
	case deleted:
		return false, errors.New("it left the API without ever having had a deletionTimestamp")
	}
	return false, nil
}

// Gone is met by a pod that has left the API.
func Gone(_ *corev1.Pod, deleted bool) (bool, error) { return deleted, nil }

// exists makes a condition of a pod that must not be deleted meanwhile, nor have ended
// without it.
func exists(met func(pod *corev1.Pod) bool) PodCondition {
	return func(pod *corev1.Pod, deleted bool) (bool, error) {
		switch {
		case deleted:
			return false, errDeleted
		case met(pod):
			return true, nil
		case ended(pod):
			return false, fmt.Errorf("it has ended as %s", pod.Status.Phase)
		}
		return false, nil
	}
}

// begun is met by a pod that runs, or has ended already by the time at which it is seen, as
// with a provider that asks for states now and then.
var begun = exists(func(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodPending })

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

func conditionStatus(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// Follow follows a pod until it has met the conditions, one after the other, and
// returns it as it then is. The error says what was waited for. once, if not nil,
// is called as soon as the pod is being followed.
func (s *Scope) Follow(ctx context.Context, pod *corev1.Pod, what string, once func(context.Context) error, conditions ...PodCondition) (*corev1.Pod, error) {
	last, err := s.follow(ctx, pod, once, conditions...)
	if err != nil {
		return last, fmt.Errorf("waiting until pod %s %s: %w", pod.Name, what, err)
	}
	return last, nil
}

func (s *Scope) follow(ctx context.Context, pod *corev1.Pod, once func(context.Context) error, conditions ...PodCondition) (last *corev1.Pod, err error) {
	ctx, cancel := s.patient(ctx)
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
			s.seen(seen)
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
		err = context.Cause(ctx)
	}
	return last, err
}

func (s *Scope) podListWatch(pod *corev1.Pod) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(listwatch.Of(s.Client.CoreV1().Pods(pod.Namespace), func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String()
	}), s.Client)
}

// waitGone waits until a pod whose deletion was asked for has left the API.
func (s *Scope) waitGone(ctx context.Context, pod *corev1.Pod) error {
	err := s.Poll(ctx, func(ctx context.Context) error {
		now, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case now.UID != pod.UID:
			return nil
		}
		s.seen(now)
		return errors.New("it is still there")
	})
	if err != nil {
		return fmt.Errorf("waiting until pod %s is gone: %w", pod.Name, err)
	}
	return nil
}
