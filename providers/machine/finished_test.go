package machine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// finishing is a world in which machines are ended soon after their pods, and what reports whether the
// node was notified that one has succeeded.
func finishing(t *testing.T) (w *world, succeeded func() error) {
	w = newWorld(t)
	w.cfg.KeepFinished = metav1.Duration{Duration: 100 * time.Millisecond}
	var notified atomic.Bool
	w.notify = func(pod *corev1.Pod) {
		if pod.Status.Phase == corev1.PodSucceeded {
			notified.Store(true)
		}
	}
	return w.start(), func() error {
		if !notified.Load() {
			return errors.New("the node was not notified of that")
		}
		return nil
	}
}

// A pod that ends before the answer to its creation, which is lost, has ended for the node, too, and its
// machine, which is paid for, is ended.
func TestPodThatEndsBeforeItsAnswer(t *testing.T) {
	w, succeeded := finishing(t)
	pod := w.pod("a")
	pod.Annotations = map[string]string{"mock.virtual-kubelet.io/run-for": "1ms", "mock.virtual-kubelet.io/exit-code": "0"}
	m := w.sentInVain(pod, true)
	w.eventually("its agent has reported the end", func() error {
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		if status, _ := w.backend.members[m.Name].link.observed(); status == nil || status.Phase != corev1.PodSucceeded {
			return errors.New("it has not")
		}
		return nil
	})
	w.eventually("it is created", func() error { return w.provider.CreatePod(t.Context(), pod) })
	w.eventually("it has succeeded", succeeded)
	w.isGone(m.Name)
	if err := w.hasPhase(pod, corev1.PodSucceeded); err != nil || w.lab.made() != 1 {
		t.Errorf("%d machines were made: %v", w.lab.made(), err)
	}
}

// The end of a pod that cannot be recorded is recorded later, without another status.
func TestEndThatCannotBeRecorded(t *testing.T) {
	w, succeeded := finishing(t)
	pod := w.run("a")
	m, back := w.only(), w.away()
	if err := m.pods.DeletePod(t.Context(), pod.DeepCopy()); err != nil { // which ends it
		t.Fatal(err)
	}
	w.eventually("it has succeeded", succeeded)
	back()
	w.isGone(m.Name)
	if err := w.hasPhase(pod, corev1.PodSucceeded); err != nil {
		t.Error(err)
	}
}
