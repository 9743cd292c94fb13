package main

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNotifications(t *testing.T) {
	p, pod := newTestProvider(), newTestPod("main")
	var phases []corev1.PodPhase
	p.NotifyPods(t.Context(), func(pod *corev1.Pod) { phases = append(phases, pod.Status.Phase) })
	if err := errors.Join(p.CreatePod(t.Context(), pod), p.DeletePod(t.Context(), pod)); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(phases) != "[Running Failed]" {
		t.Errorf("notified of %v", phases)
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
