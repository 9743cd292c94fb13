package podengine

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// policyOf is the restart policy of a container: its own, or the pod's.
func policyOf(pod *corev1.Pod, c *corev1.Container) corev1.RestartPolicy {
	if c.RestartPolicy != nil {
		return corev1.RestartPolicy(*c.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// exitCodeDecides reports whether a container that ends by itself may be one that is not
// started again, or all others with it. Those with the policy Always are, but for init containers
// that succeed.
func exitCodeDecides(pod *corev1.Pod, k kind, c *corev1.Container) bool {
	policy := policyOf(pod, c)
	return k == initKind || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure ||
		len(c.RestartPolicyRules) > 0
}

// recordRestarts persists that containers are about to be stopped to be started again,
// before they are: many programs exit with 0 when they are asked to stop, which must
// not pass for the end of their work, also if this process ends in between. If that cannot be written they are
// stopped all the same: what fills the disk may be one of them. It fails once the pod has been removed.
func (w *worker) recordRestarts(ctx context.Context, pod *corev1.Pod, stopped ...*container) error {
	due := map[string]uint32{}
	for _, inc := range stopped {
		if k, c := findContainer(pod, inc.name); c != nil && exitCodeDecides(pod, k, c) {
			due[inc.name] = max(due[inc.name], inc.attempt)
		}
	}
	if w.haveRestarts(due) {
		return nil
	}
	err := w.change(func(d desired) desired {
		d.restarting = maps.Clone(d.restarting)
		if d.restarting == nil {
			d.restarting = map[string]uint32{}
		}
		for name, attempt := range due {
			d.restarting[name] = max(d.restarting[name], attempt)
		}
		return d
	})
	if err != nil && !errdefs.IsNotFound(err) {
		log.G(ctx).WithError(err).Warn("Cannot record that containers are started again: one that exits with 0 is not, if this process ends before")
		return nil
	}
	return err
}

// graceToKill is the grace period of a container that is stopped while the pod goes on. A stop that is resumed though its
// reason may hold no more has that of its last try, or, if that was in the process before, at most that of its probes: it is
// not known any more whether it was for one.
func (w *worker) graceToKill(pod *corev1.Pod, c *corev1.Container, a action) time.Duration {
	done := w.endingOf(a.id)
	if a.resumed && done.grace != nil {
		return *done.grace
	}
	grace := podspec.GracePeriod(pod, w.engine.failedProbe(pod, c))
	if a.resumed {
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.StartupProbe} {
			grace = min(grace, podspec.GracePeriod(pod, probe))
		}
	}
	done.grace = &grace
	return grace
}

// haveRestarts reports whether restarts are on disk.
func (w *worker) haveRestarts(due map[string]uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, attempt := range due {
		if last, ok := w.restarting[name]; !ok || last < attempt || w.unrecorded {
			return false
		}
	}
	return true
}

// startsAgain reports whether an attempt is stopped, or was, to be started again.
func (w *worker) startsAgain(inc *container) bool {
	last, ok := w.desiredState().restarting[inc.name]
	return ok && inc.attempt == last
}

// restartingOf are the attempts that are stopped, or were, to be started again; by ID.
func (w *worker) restartingOf(seen *runtimeView) map[string]bool {
	all := map[string]bool{}
	for name := range w.desiredState().restarting {
		for _, inc := range seen.containers[name] {
			if w.startsAgain(inc) {
				all[inc.id] = true
			}
		}
	}
	return all
}

// toRestart are the containers that run, and are started again in another sandbox.
func toRestart(pod *corev1.Pod, seen *runtimeView) (all []*container) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if policyOf(pod, c) == corev1.RestartPolicyNever {
			continue
		}
		for _, inc := range seen.containers[c.Name] {
			if inc.mayRun() {
				all = append(all, inc)
			}
		}
	}
	return all
}
