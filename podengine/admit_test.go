package podengine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/exec"
)

// A pod that cannot run here fails, says why, and leaves nothing in the runtime.
func TestPodsThatDoNotFitFail(t *testing.T) {
	sysctl := func(name string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: name, Value: "1"}}}
		}
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		reason string
	}{
		"another system":           {func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, "PodOSNotSupported"},
		"this system":              {func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Linux} }, ""},
		"an unsafe sysctl":         {sysctl("kernel.msgmax"), "SysctlForbidden"},
		"one with slashes":         {sysctl("kernel/msgmax"), "SysctlForbidden"},
		"a safe sysctl":            {sysctl("kernel.shm_rmid_forced"), ""},
		"an unsafe one, permitted": {sysctl("net.core.somaxconn"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.Engine.cfg.UnsafeSysctls = []string{"net.core.*"}
				pod := makePod("a", c.change)
				r.create(pod)
				r.after(time.Second)
				status := r.status(pod)
				if status.Reason != c.reason || (status.Phase == corev1.PodFailed) != (c.reason != "") {
					t.Errorf("the pod is %s, %q: %s", status.Phase, status.Reason, status.Message)
				}
				if c.reason != "" {
					r.wantCalls()
				}
				r.delete(pod, 0)
				r.after(time.Second)
				r.wantGone(pod)
			})
		})
	}
}

// Whether a pod is ready is reported while its worker is busy, here with a container
// that takes its time to end.
func TestReadinessIsReportedDuringTheEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		var well atomic.Bool
		well.Store(true)
		r.runtime.exec = func(context.Context, string, []string) error {
			if well.Load() {
				return nil
			}
			return exec.CodeExitError{Err: errors.New("no"), Code: 1}
		}
		r.runtime.plans["a"] = plan{lingers: time.Minute}
		pod := makePod("a", first(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: command("ready")}, PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1}
		}))
		r.create(pod)
		r.after(2 * time.Second)
		r.wantState(pod, "Running a=ready")
		r.delete(pod, 30)
		r.after(time.Second)
		r.wantState(pod, "Running a=ready")
		well.Store(false)
		r.after(2 * time.Second)
		r.wantState(pod, "Running a=running") // and not ready
	})
}
