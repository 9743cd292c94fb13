package podengine

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// restartAll ends all containers of a pod, but for ephemeral ones, to start them
// again in their order, init containers first (KEP-5532). The sandbox and the
// volumes stay. As with a kubelet there is no grace period, and no preStop hook.
func (w *worker) restartAll(ctx context.Context, pod *corev1.Pod, seen *runtimeView) error {
	var stops []func() error
	ended := map[string]uint32{}
	eachContainer(pod, func(k kind, c *corev1.Container) {
		if k == ephemeralKind {
			return
		}
		for _, inc := range seen.containers[c.Name] {
			ended[c.Name] = max(ended[c.Name], inc.attempt)
			if inc.mayRun() {
				stops = append(stops, func() error {
					why := fmt.Sprintf("Container %s will be restarted with all containers of the pod", c.Name)
					return w.stopContainer(ctx, pod, seen, c, inc, time.Now(), why, nil)
				})
			}
		}
	})
	if err := atOnce(stops); err != nil {
		return err
	}
	return w.change(func(d desired) desired {
		d.superseded = maps.Clone(ended)
		return d
	})
}

// isSuperseded reports whether an attempt was ended by a restart of all containers.
func (w *worker) isSuperseded(inc *container) bool {
	if inc == nil || inc.mayRun() {
		return false
	}
	last, ok := w.desiredState().superseded[inc.name]
	return ok && inc.attempt <= last
}

// isRestarting reports whether containers that a restart of all has ended are still
// to be started.
func (w *worker) isRestarting(seen *runtimeView) bool {
	for name := range w.desiredState().superseded {
		if w.isSuperseded(seen.newest(name)) {
			return true
		}
	}
	return false
}

// waitingAgain is why a container does not run that a restart of all has ended.
func (w *worker) waitingAgain(pod *corev1.Pod, c *corev1.Container) *corev1.ContainerStateWaiting {
	if f := w.failures[c.Name]; f.reason != "" {
		return w.waiting(pod, c)
	}
	return &corev1.ContainerStateWaiting{
		Reason:  podspec.ReasonRestartingAllContainers,
		Message: "The container waits for the restart of all containers of the pod",
	}
}
