package podspec

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestConditionsOfAResize(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	begin := metav1.NewTime(time.Unix(1000, 0))
	o := Observation{
		ResizePending:    &Resize{Reason: corev1.PodReasonDeferred, Message: "no room", Generation: 2},
		ResizeInProgress: &Resize{},
	}
	s := Status(pod, o, nil, begin)
	if c := find(s.Conditions, corev1.PodResizePending); c == nil || c.Status != corev1.ConditionTrue || c.Reason != "Deferred" ||
		c.Message != "no room" || c.ObservedGeneration != 2 || c.LastTransitionTime != begin {
		t.Errorf("pending: %+v", c)
	}
	if c := find(s.Conditions, corev1.PodResizeInProgress); c == nil || c.Status != corev1.ConditionTrue || c.Reason != "" || c.ObservedGeneration != 3 {
		t.Errorf("in progress: %+v", c)
	}
	o.ResizePending = nil
	s = Status(pod, o, &s, metav1.NewTime(time.Unix(2000, 0)))
	if c := find(s.Conditions, corev1.PodResizePending); c != nil {
		t.Errorf("pending no more: %+v", c)
	}
	if c := find(s.Conditions, corev1.PodResizeInProgress); c == nil || c.LastTransitionTime != begin {
		t.Errorf("still in progress: %+v", c)
	}
}
