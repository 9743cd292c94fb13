package e2e

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
)

// onFake is a suite on a fake cluster that has one pod.
func onFake(t *testing.T) (*EndToEndTestSuite, *corev1.Pod) {
	t.Helper()
	s := NewEndToEndTestSuite(EndToEndTestSuiteConfig{NodeName: "node"})
	pod := s.newPod("fake")
	pod.Name, pod.UID = "fake", "uid"
	pod.Status.Phase = corev1.PodPending
	s.client = fake.NewClientset(pod)
	return s, pod
}

func setPhase(t *testing.T, s *EndToEndTestSuite, pod *corev1.Pod, phase corev1.PodPhase) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.Status.Phase = phase
	if _, err := s.client.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
}

func TestFollowPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t)
		time.AfterFunc(time.Minute, func() { setPhase(t, s, pod, corev1.PodRunning) })
		last, err := s.followPod(t.Context(), pod, nil, running)
		if err != nil || last.Status.Phase != corev1.PodRunning {
			t.Errorf("got %v, %v", last, err)
		}
		_, err = s.followPod(t.Context(), pod, func(ctx context.Context) error { return s.delete(ctx, pod, 0) }, gone)
		if err != nil {
			t.Error(err)
		}
	})
}

func TestFollowPodThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t)
		time.AfterFunc(time.Second, func() { setPhase(t, s, pod, corev1.PodFailed) })
		if _, err := s.followPod(t.Context(), pod, nil, running); err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("got %v", err)
		}
	})
}

func TestFollowPodTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t)
		began := time.Now()
		if _, err := s.followPod(t.Context(), pod, nil, running); err == nil || !strings.Contains(err.Error(), "not within 2m0s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("gave up after %v", took)
		}
	})
}

func TestFollowEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod := onFake(t)
		for i, reason := range []string{"Other", "Wanted"} {
			time.AfterFunc(time.Duration(i)*time.Second, func() {
				event := &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Name: strings.ToLower(reason)},
					InvolvedObject: corev1.ObjectReference{UID: pod.UID}, Reason: reason, Message: "it is so",
				}
				if _, err := s.client.CoreV1().Events(pod.Namespace).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		if err := s.followEvents(t.Context(), pod, "Wanted"); err != nil {
			t.Error(err)
		}
		if err := s.followEvents(t.Context(), pod, "Unwanted"); err == nil {
			t.Error("an event that there is not was found")
		}
		if text := s.describe(pod); !strings.Contains(text, "phase Pending") || !strings.Contains(text, "Wanted: it is so") {
			t.Errorf("the description lacks something: %s", text)
		}
	})
}

func TestTerminating(t *testing.T) {
	alive, marked := &corev1.Pod{}, &corev1.Pod{}
	marked.DeletionTimestamp = &metav1.Time{}
	if met, err := terminating(alive, false); met || err != nil {
		t.Error("a pod that is not deleted counts as terminating")
	}
	if met, _ := terminating(marked, true); !met {
		t.Error("a pod that went as soon as it was marked does not count")
	}
	if _, err := terminating(alive, true); err == nil {
		t.Error("a pod that went unmarked is no error")
	}
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewEndToEndTestSuite(EndToEndTestSuiteConfig{})
		tries := 0
		if err := s.poll(t.Context(), func(context.Context) error {
			if tries++; tries < 3 {
				return notYet("try %d", tries)
			}
			return nil
		}); err != nil || tries != 3 {
			t.Errorf("got %v after %d tries", err, tries)
		}

		wrong := errors.New("the pod is not there")
		err := s.poll(t.Context(), func(context.Context) error { return wrong })
		if !errors.Is(err, wrong) || !strings.Contains(err.Error(), "not within 2m0s") {
			t.Errorf("got %v", err)
		}

		for _, hopeless := range []error{
			apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node", nil),
			apierrors.NewGenericServerResponse(http.StatusNotImplemented, "get", schema.GroupResource{}, "", "", 0, true),
		} {
			began := time.Now()
			if err := s.poll(t.Context(), func(context.Context) error { return hopeless }); !errors.Is(err, hopeless) || time.Since(began) > 0 {
				t.Errorf("got %v after %v", err, time.Since(began))
			}
		}
	})
}
