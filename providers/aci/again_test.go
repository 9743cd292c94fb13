package aci

import (
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci/acitest"
)

// running creates a pod that has run for an hour, by its status.
func (r *rig) running(t *testing.T, name string, policy corev1.RestartPolicy) *corev1.Pod {
	t.Helper()
	pod := grouptest.NewPod(name)
	pod.Spec.RestartPolicy = policy
	r.create(t, pod)
	r.record(t, pod)
	time.Sleep(time.Hour)
	return pod
}

// record has the cluster know the status of a pod.
func (r *rig) record(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Status = *r.status(t, pod)
	r.cluster.SetPod(pod.DeepCopy())
}

func (r *rig) move(t *testing.T, pod *corev1.Pod, state string, run *podgroup.Run) {
	t.Helper()
	if run != nil && run.State == podgroup.Executing {
		run = &podgroup.Run{State: podgroup.Executing, Started: time.Now()}
	}
	if err := r.server.Move(pod.Name, state, run); err != nil {
		t.Fatal(err)
	}
}

// A pod that is to run once has failed when Azure moves its group, and the group is stopped.
func TestGroupIsMoved(t *testing.T) {
	for name, test := range map[string]struct {
		state string
		run   *podgroup.Run
		away  bool // the process, meanwhile
	}{
		"unhealthy":                {state: "Unhealthy"},
		"repairing":                {state: "Repairing"},
		"waits":                    {run: &podgroup.Run{}},
		"runs":                     {run: &podgroup.Run{State: podgroup.Executing}},
		"waits after a restart":    {run: &podgroup.Run{}, away: true},
		"runs after a restart":     {run: &podgroup.Run{State: podgroup.Executing}, away: true},
		"repaired after a restart": {state: "Repairing", run: &podgroup.Run{}, away: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				pod, other := r.running(t, "once", corev1.RestartPolicyNever), r.running(t, "other", corev1.RestartPolicyNever)
				stranger := r.running(t, "stranger", corev1.RestartPolicyNever)
				r.cluster.RemovePod(stranger)
				started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
				for _, moved := range []*corev1.Pod{pod, stranger} {
					r.move(t, moved, test.state, test.run)
				}
				if test.away {
					r.start(t, nil)
				}
				s := r.status(t, pod)
				disrupted := slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
					return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
				})
				if end := s.ContainerStatuses[0].State.Terminated; s.Phase != corev1.PodFailed || s.Reason != "NodeLost" || !disrupted ||
					end == nil || end.Reason != "ContainerStatusUnknown" || !end.StartedAt.Time.Equal(started.Time) {
					t.Errorf("the status is %+v", s)
				}
				if s := r.status(t, other); s.Phase != corev1.PodRunning {
					t.Errorf("the status of another pod is %+v", s)
				}
				r.record(t, pod)
				time.Sleep(time.Hour)
				if s := r.status(t, pod); s.Phase != corev1.PodFailed || s.Reason != "NodeLost" {
					t.Errorf("an hour later the status is %+v", s)
				}
				if n := r.world.Calls(acitest.ActionStop); n != 1 {
					t.Errorf("groups were stopped %d times", n)
				}
				if test.run != nil && test.run.State == podgroup.Waiting {
					return // Azure has no log of a group that has not begun to run again
				}
				if log, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{}); err != nil {
					t.Errorf("the log is lost: %v", err)
				} else {
					_ = log.Close()
				}
			})
		})
	}
}

// A pod goes on as it is until its group is stopped: its controller would start another one.
func TestMovedGroupCannotBeStopped(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := r.running(t, "once", corev1.RestartPolicyNever)
		r.world.Refuse(acitest.ActionStop, 2, &grouptest.Refusal{Status: http.StatusConflict, Code: "ContainerGroupTransitioning", Message: "still transitioning"})
		r.move(t, pod, "Repairing", nil)
		for range 2 {
			if s := r.status(t, pod); s.Phase != corev1.PodRunning {
				t.Errorf("while the group cannot be stopped the status is %+v", s)
			}
		}
		if s := r.status(t, pod); s.Phase != corev1.PodFailed || r.world.Calls(acitest.ActionStop) != 3 {
			t.Errorf("after %d tries the status is %+v", r.world.Calls(acitest.ActionStop), s)
		}
		r.record(t, pod)
		// It was started there again, and nothing shows but the pod's status that it is not to run.
		if err := r.server.Start(pod.Name); err != nil {
			t.Fatal(err)
		}
		r.start(t, nil)
		if r.status(t, pod); r.world.Calls(acitest.ActionStop) != 4 {
			t.Errorf("a group that runs on was stopped %d times", r.world.Calls(acitest.ActionStop))
		}
	})
}

// Pods that may run again do, and a run that has ended counts.
func TestMovedGroupsThatGoOn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		always, retried := r.running(t, "always", corev1.RestartPolicyAlways), r.running(t, "retried", corev1.RestartPolicyOnFailure)
		ended := r.running(t, "ended", corev1.RestartPolicyNever)
		if err := r.world.Exit(ended.Name, "main", 0); err != nil {
			t.Fatal(err)
		}
		for _, pod := range []*corev1.Pod{always, retried} {
			r.move(t, pod, "", &podgroup.Run{State: podgroup.Executing})
		}
		r.move(t, ended, "Unhealthy", nil)
		for pod, want := range map[*corev1.Pod]corev1.PodPhase{always: corev1.PodRunning, retried: corev1.PodRunning, ended: corev1.PodSucceeded} {
			if s := r.status(t, pod); s.Phase != want {
				t.Errorf("the status of %s is %+v", pod.Name, s)
			}
		}
		// Nor is a group stopped that was just created, or whose init containers run.
		first := grouptest.NewPod("first")
		first.Spec.RestartPolicy = corev1.RestartPolicyNever
		first.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox"}}
		r.create(t, first)
		at := time.Now()
		if err := r.world.Change(first.Name, func(u *grouptest.Unit) {
			u.Phase = podgroup.Pending
			u.Containers[0].Now = podgroup.Run{State: podgroup.Executing, Started: at}
			u.Containers[1].Now = podgroup.Run{}
		}); err != nil {
			t.Fatal(err)
		}
		r.record(t, first)
		// Nor one of which one container runs while the image of another is pulled.
		partly := grouptest.NewPod("partly")
		partly.Spec.RestartPolicy = corev1.RestartPolicyNever
		partly.Spec.Containers = append(partly.Spec.Containers, corev1.Container{Name: "side", Image: "large"})
		r.create(t, partly)
		if err := r.world.Change(partly.Name, func(u *grouptest.Unit) {
			u.Phase = podgroup.Pending
			u.Container("main").Now = podgroup.Run{State: podgroup.Executing, Started: at}
			u.Container("side").Now = podgroup.Run{}
		}); err != nil {
			t.Fatal(err)
		}
		r.record(t, partly)
		for range 3 {
			r.status(t, partly)
		}
		if s := r.status(t, first); s.Phase != corev1.PodPending || s.InitContainerStatuses[0].State.Running == nil {
			t.Errorf("while init containers run the status is %+v", s)
		}
		if n := r.world.Calls(acitest.ActionStop); n != 0 {
			t.Errorf("groups were stopped %d times", n)
		}
	})
}
