package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A pod that has not begun to run, or waits, has conditions of readiness, which are those of
// its remote pod once that has any.
func TestReadinessOfAPodThatDoesNotRun(t *testing.T) {
	reported := []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "main"},
		{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "main"},
	}
	status := func(phase corev1.PodPhase, conditions []corev1.PodCondition) corev1.PodStatus {
		return options().Status(&corev1.Pod{Status: corev1.PodStatus{Phase: phase, Conditions: conditions}})
	}
	for what, c := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"new":                      {status("", nil), "ContainersReady=False,ContainersNotReady, Ready=False,ContainersNotReady,"},
		"pending":                  {status(corev1.PodPending, nil), "ContainersReady=False,ContainersNotReady, Ready=False,ContainersNotReady,"},
		"pending, with conditions": {status(corev1.PodPending, reported), "ContainersReady=False,ContainersNotReady,main Ready=False,ContainersNotReady,main"},
		"running, without any":     {status(corev1.PodRunning, nil), ""},
		"waiting":                  {Waiting(status(corev1.PodFailed, nil), 0), "ContainersReady=False,RemotePodGone, Ready=False,RemotePodGone,"},
	} {
		var got []string
		for _, s := range c.status.Conditions {
			if s.Type != corev1.PodScheduled {
				got = append(got, fmt.Sprintf("%s=%s,%s,%s", s.Type, s.Status, s.Reason, s.Message))
			}
		}
		if slices.Sort(got); strings.Join(got, " ") != c.want {
			t.Errorf("%s: conditions are %q, want %q", what, got, c.want)
		}
	}
}
