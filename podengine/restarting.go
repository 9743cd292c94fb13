package podengine

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// policyOf is the restart policy of a container: its own, or the pod's.
func policyOf(pod *corev1.Pod, c *corev1.Container) corev1.RestartPolicy {
	if c.RestartPolicy != nil {
		return corev1.RestartPolicy(*c.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// exitCodeDecides reports whether a container that ends by itself may be one that is not
// started again. Those with the policy Always are, but for init containers that succeed.
func exitCodeDecides(pod *corev1.Pod, k kind, c *corev1.Container) bool {
	policy := policyOf(pod, c)
	return k == initKind || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure
}

// recordRestarts persists that containers are about to be stopped to be started again,
// before they are: many programs exit with 0 when they are asked to stop, which must
// not pass for the end of their work, also if this process ends in between.
func (w *worker) recordRestarts(pod *corev1.Pod, stopped ...*container) error {
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
		maps.Copy(d.restarting, due)
		return d
	})
	if err != nil {
		return fmt.Errorf("cannot record that containers are started again, and does not stop them before: %w", err)
	}
	return nil
}

// haveRestarts reports whether restarts are on disk.
func (w *worker) haveRestarts(due map[string]uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, attempt := range due {
		if last, ok := w.restarting[name]; !ok || last != attempt || w.unrecorded {
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
