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

// A pod that is to have no groups of its image does not run where it would have them.
func TestStrictSupplementalGroups(t *testing.T) {
	const reason = "SupplementalGroupsPolicyNotSupported"
	for name, c := range map[string]struct {
		policy    corev1.SupplementalGroupsPolicy
		supported bool
		reason    string
	}{
		"strict":                {corev1.SupplementalGroupsPolicyStrict, true, ""},
		"strict, not supported": {corev1.SupplementalGroupsPolicyStrict, false, reason},
		"merge, not supported":  {corev1.SupplementalGroupsPolicyMerge, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, func(r *rig) {
				away := true
				r.runtime.strictGroups, r.runtime.before = c.supported, func(_ context.Context, call string) error {
					if call == "Status" && away {
						away = false
						return errors.New("the runtime is away")
					}
					return nil
				}
			}, func(r *rig) {
				pod := makePod("a", func(pod *corev1.Pod) {
					pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &c.policy}
				})
				r.create(pod)
				r.after(5 * time.Second)
				if c.reason == "" {
					r.wantState(pod, "Running a=ready")
					return
				}
				r.wantState(pod, "Failed")
				const says = "SupplementalGroupsPolicy=Strict is not supported in this node"
				if s := r.status(pod); s.Reason != c.reason || s.Message != "Pod was rejected: "+says {
					t.Errorf("the pod is %q: %s", s.Reason, s.Message)
				}
				if n := r.events.count("Warning " + c.reason + ": " + says); n != 1 {
					t.Errorf("events are %v", r.events.drain())
				}
				r.wantCalls()
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
