package nodecheck

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t, Options{})
		time.AfterFunc(time.Minute, func() { setPhase(t, s, pod, corev1.PodRunning) })
		last, err := s.Follow(t.Context(), pod, "runs", nil, Running)
		if err != nil || last.Status.Phase != corev1.PodRunning {
			t.Errorf("got %v, %v", last, err)
		}
		_, err = s.Follow(t.Context(), pod, "is gone", func(ctx context.Context) error { return s.Delete(ctx, pod, 0) }, Gone)
		if err != nil {
			t.Error(err)
		}
	})
}

func TestFollowPodThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t, Options{})
		time.AfterFunc(time.Second, func() { setPhase(t, s, pod, corev1.PodFailed) })
		if _, err := s.Follow(t.Context(), pod, "runs", nil, Running); err == nil || !strings.Contains(err.Error(), "until pod fake runs: it has ended") {
			t.Errorf("got %v", err)
		}
	})
}

// The check's time and the patience for a single thing both end a wait.
func TestFollowTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t, Options{Patience: 2 * time.Minute})
		began := time.Now()
		if _, err := s.Follow(t.Context(), pod, "runs", nil, Running); err == nil || !strings.Contains(err.Error(), "not within 2m0s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("gave up after %v", took)
		}
		ctx, cancel := within(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Follow(ctx, pod, "runs", nil, Running); err == nil || !strings.Contains(err.Error(), "not within 1m0s") {
			t.Errorf("got %v", err)
		}
	})
}

func TestFollowEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t, Options{Patience: time.Minute})
		for i, reason := range []string{"Other", "Wanted"} {
			time.AfterFunc(time.Duration(i)*time.Second, func() { addEvent(t, s, pod, strings.ToLower(reason), reason, "it is so") })
		}
		reason := func(reason string) func(*corev1.Event) bool {
			return func(event *corev1.Event) bool { return event.Reason == reason }
		}
		if err := s.FollowEvents(t.Context(), pod, "an event", reason("Wanted")); err != nil {
			t.Error(err)
		}
		if err := s.FollowEvents(t.Context(), pod, "an event", reason("Unwanted")); err == nil {
			t.Error("an event that there is not was found")
		}
		s.seen(pod)
		if text := s.Describe(t.Context()); !strings.Contains(text, "phase Pending") || !strings.Contains(text, "Wanted: it is so") {
			t.Errorf("the description lacks something: %s", text)
		}
	})
}

func TestTerminating(t *testing.T) {
	alive, marked := &corev1.Pod{}, &corev1.Pod{}
	marked.DeletionTimestamp = &metav1.Time{}
	if met, err := Terminating(alive, false); met || err != nil {
		t.Error("a pod that is not deleted counts as terminating")
	}
	if met, _ := Terminating(marked, true); !met {
		t.Error("a pod that went as soon as it was marked does not count")
	}
	if _, err := Terminating(alive, true); err == nil {
		t.Error("a pod that went unmarked is no error")
	}
}

func TestRestarted(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{}}}}
	if met, err := restarted(1)(pod, false); met || err != nil {
		t.Errorf("a container that was not restarted: %v, %v", met, err)
	}
	pod.Status.ContainerStatuses[0].RestartCount = 1
	if _, err := restarted(1)(pod, false); err == nil {
		t.Error("a container whose last state is unknown is no error")
	}
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	if met, err := restarted(1)(pod, false); !met || err != nil {
		t.Errorf("a container that was restarted: %v, %v", met, err)
	}
	if _, err := restarted(0)(pod, false); err == nil {
		t.Error("another exit code is no error")
	}
}

// A wait ends where nothing can change any more.
func TestWaitsEndWithWhatIsFinal(t *testing.T) {
	var pod corev1.Pod
	never := exists(func(*corev1.Pod) bool { return false })
	for name, condition := range map[string]PodCondition{"exists": never, "restarted": restarted(1)} {
		pod.Status.Phase = corev1.PodRunning
		if met, err := condition(&pod, false); met || err != nil {
			t.Errorf("%s, of a pod that runs: %v, %v", name, met, err)
		}
		pod.Status.Phase = corev1.PodSucceeded
		if _, err := condition(&pod, false); err == nil || err.Error() != "it has ended as Succeeded" {
			t.Errorf("%s, of a pod that has ended: %v", name, err)
		}
	}
	if met, err := begun(&pod, false); !met || err != nil {
		t.Errorf("a pod that is first seen when it has ended: %v, %v", met, err)
	}
	if met, err := exists(ended)(&pod, false); !met || err != nil {
		t.Errorf("a pod that has ended as it should: %v, %v", met, err)
	}
	for text, want := range map[string]string{"": "goes on", "one\n": "goes on", "one\ntwo\n": "", "two\n": "is final", "one\ntwo\nthree\n": "is final"} {
		err := becomes("the log", "one\ntwo\n")(text)
		if got := map[bool]string{true: "is final", false: "goes on"}[hopeless(err)]; (err == nil) != (want == "") || err != nil && got != want {
			t.Errorf("of %q: %v, which %s, want %q", text, err, got, want)
		}
	}
}

// A pod that starts without what it lacks will have no event about that.
func TestWaitMentionedEndsWhenThePodStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t, Options{Patience: 2 * time.Minute})
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			pod := pod.DeepCopy()
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			setPhase(t, s, pod, corev1.PodRunning)
		})
		err := s.WaitMentioned(t.Context(), pod, "colours")
		if err == nil || !strings.Contains(err.Error(), "it lacks colours, but container main was started") || time.Since(began) > 2*time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		time.AfterFunc(time.Second, func() { addEvent(t, s, pod, "event", "Failed", "no colours here") })
		pod = pod.DeepCopy()
		pod.Status.ContainerStatuses = nil
		setPhase(t, s, pod, corev1.PodPending)
		if err := s.WaitMentioned(t.Context(), pod, "colours"); err != nil {
			t.Error(err)
		}
	})
}
