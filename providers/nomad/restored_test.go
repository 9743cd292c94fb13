package nomad

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad/nomadtest"
)

// Nomad starts containers again that its client has lost while it was started again. A pod that is
// to run once has failed then, and its job is stopped.
func TestPodThatAMachineHasLost(t *testing.T) {
	never := func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }
	for name, test := range map[string]struct{ runs, away, refused bool }{
		"waits": {}, "runs": {runs: true}, "runs, the process away": {runs: true, away: true}, "cannot be stopped at once": {runs: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, never, func(t *testing.T, r *rig, pod *corev1.Pod) {
				pod.Status = *r.phase(t, pod)
				r.cluster.SetPod(pod)
				if test.away {
					grouptest.Close(t, r.Provider)
				}
				if test.refused {
					r.world.Refuse(nomadtest.ActionDeregister, 1, &grouptest.Refusal{Status: 500, Message: "No cluster leader"})
				}
				time.Sleep(time.Hour)
				if err := r.api.Restore(pod.Name, test.runs); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if test.away {
					r.start(t)
				}
				if test.refused { // it would be started elsewhere by its controller
					if s := r.phase(t, pod); s.Phase != corev1.PodRunning {
						t.Errorf("while its job goes on the status is %+v", s)
					}
				}
				time.Sleep(aMoment)
				s := r.phase(t, pod)
				isDisrupted := slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
					return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
				})
				if end := s.ContainerStatuses[0].State.Terminated; s.Phase != corev1.PodFailed || !isDisrupted || end == nil || end.ExitCode != 137 || end.Reason != "ContainerStatusUnknown" ||
					end.FinishedAt.Sub(end.StartedAt.Time) < time.Hour {
					t.Errorf("the status is %+v", s)
				}
				if u, err := r.world.OfPod(pod.Name); err == nil {
					t.Errorf("the job goes on: %v", u.Phase)
				}
			})
		})
	}
	for policy, want := range map[corev1.RestartPolicy]corev1.PodPhase{corev1.RestartPolicyOnFailure: corev1.PodRunning, corev1.RestartPolicyAlways: corev1.PodRunning, corev1.RestartPolicyNever: corev1.PodSucceeded} {
		t.Run(string(policy), func(t *testing.T) {
			inVirtualTime(t, func(pod *corev1.Pod) { pod.Spec.RestartPolicy = policy }, func(t *testing.T, r *rig, pod *corev1.Pod) {
				if policy == corev1.RestartPolicyNever { // the second run has come to its end while the process was away
					grouptest.Close(t, r.Provider)
				}
				if err := r.api.Restore(pod.Name, true); err != nil {
					t.Fatal(err)
				}
				if policy == corev1.RestartPolicyNever {
					if err := r.world.Exit(pod.Name, "main", 0); err != nil {
						t.Fatal(err)
					}
					r.start(t)
				}
				time.Sleep(aMoment)
				if s := r.phase(t, pod); s.Phase != want || r.world.Calls(nomadtest.ActionDeregister) != 0 {
					t.Errorf("the status is %+v", s)
				}
			})
		})
	}
}
