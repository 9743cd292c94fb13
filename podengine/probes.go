package podengine

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/probe"
)

// updateProbes passes to the probes which containers run.
func (w *worker) updateProbes(pod *corev1.Pod, seen *runtimeView) {
	_, s := w.current()
	now := probe.Pod{Pod: pod, Terminating: s != nil, Containers: map[string]probe.Container{}}
	if box := seen.sandbox(); box != nil {
		if ips := w.engine.podIPs(pod, box); len(ips) > 0 {
			now.IP = ips[0]
		}
	}
	for name := range seen.containers {
		inc := seen.newest(name)
		if inc.phase != running {
			continue
		}
		c := probe.Container{ID: inc.id, StartedAt: inc.started}
		if was := w.statusBefore(name); was != nil && strings.HasSuffix(was.ContainerID, "://"+inc.id) {
			c.Started, c.Ready = was.Started != nil && *was.Started, was.Ready
		}
		now.Containers[name] = c
	}
	w.engine.probes.Set(now)
}

// probed is what the probes have found of the containers that run.
func (e *Engine) probed(pod *corev1.Pod) map[string]probed {
	all := map[string]probed{}
	for name, r := range e.probes.Results(pod.UID) {
		all[name] = probed{started: r.Started, failed: r.Failed(name)}
	}
	return all
}

// failedProbe is the probe for whose failure a container is killed, or nil.
func (e *Engine) failedProbe(pod *corev1.Pod, c *corev1.Container) *corev1.Probe {
	switch r := e.probes.Results(pod.UID)[c.Name]; {
	case r.StartupFailed:
		return c.StartupProbe
	case r.LivenessFailed:
		return c.LivenessProbe
	}
	return nil
}
