package podengine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/probe"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// makeParts makes what the engine consists of besides its workers.
func (e *Engine) makeParts() (err error) {
	options := volume.Options{
		Root:            e.cfg.Root,
		Objects:         e.cfg.Objects,
		Tokens:          e.cfg.Tokens,
		Claims:          e.cfg.Claims,
		AllowHostPath:   e.cfg.AllowHostPath,
		NoLinksFollowed: e.cfg.NoLinksFollowed,
		Images:          imageVolumes{},
	}
	if e.cfg.NodeAllocatable != nil {
		options.NodeAllocatable = e.cfg.NodeAllocatable()
	}
	if e.volumes, err = volume.New(options); err != nil {
		return err
	}
	e.probes = probe.NewManager(probe.ManagerOptions{
		Runner: e.prober,
		Notify: e.probesChanged,
		Event:  e.containerEvent,
	})
	if e.records, err = image.OpenRecords(filepath.Join(e.cfg.Root, "images")); err != nil {
		return err
	}
	e.makeCollector()
	e.puller = image.NewPuller(image.PullerOptions{
		Images:       e.cfg.Images,
		MaxParallel:  e.cfg.ParallelPulls,
		Event:        e.containerEvent,
		Records:      e.records,
		Verification: e.cfg.ImageVerification.Policy,
		Allowed:      e.cfg.ImageVerification.Allowed,
	})
	e.unsubscribe = e.cfg.Objects.Subscribe(e.objectChanged)
	return nil
}

// objectChanged has the pods looked at that name an object, and what failed of
// them tried again at once: it may be what they wait for.
func (e *Engine) objectChanged(kind, namespace, name string) {
	for _, w := range e.all() {
		pod, _ := w.current()
		if _, named := podobjects.References(pod)[podenv.Object{Kind: kind, Namespace: namespace, Name: name}]; named {
			w.hasten()
		}
	}
}

// probesChanged has a pod looked at, and says at once whether it is ready: its
// worker may be busy for long, as with a graceful end.
func (e *Engine) probesChanged(uid types.UID) {
	w := e.worker(uid)
	if w == nil {
		return
	}
	w.nudge()
	w.republish(e.ctx)
}

// containerEvent records an event on a container of a pod.
func (e *Engine) containerEvent(pod *corev1.Pod, container, kind, reason, message string) {
	e.cfg.Events.Event(reference(pod, container), kind, reason, message)
}

// reference is what an event about a container of a pod is about, or about the
// pod if it has no such container.
func reference(pod *corev1.Pod, container string) runtime.Object {
	k, c := findContainer(pod, container)
	if c == nil {
		return pod
	}
	field := "spec.containers"
	switch k {
	case initKind, sidecarKind:
		field = "spec.initContainers"
	case ephemeralKind:
		field = "spec.ephemeralContainers"
	}
	return &corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Pod",
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		UID:             pod.UID,
		ResourceVersion: pod.ResourceVersion,
		FieldPath:       field + "{" + container + "}",
	}
}

// watchProbes tells the probes which containers run.
func (w *worker) watchProbes(pod *corev1.Pod, seen *runtimeView) {
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

// statusBefore is what was last said of a container, by this process or an
// earlier one.
func (w *worker) statusBefore(name string) *corev1.ContainerStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := &w.pod.Status
	if w.status != nil {
		status = w.status
	}
	for _, statuses := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
			return &statuses[i]
		}
	}
	return nil
}

// probed is what the probes say of the containers that run.
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

// runHook runs a lifecycle handler of a container.
func (e *Engine) runHook(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container, handler *corev1.LifecycleHandler) (err error) {
	ctx, span := startSpan(ctx, "runHook", pod)
	annotate(span, attributeContainer, c.Name)
	defer endSpan(span, &err)
	target := probe.Target{Pod: pod, Container: c, ContainerID: inc.id}
	if box := seen.sandbox(); box != nil {
		if ips := e.podIPs(pod, box); len(ips) > 0 {
			target.IP = ips[0]
		}
	}
	return e.prober.Hook(ctx, target, handler)
}

// keepVolumes writes anew what has changed in the volumes of a pod that runs. It
// returns when that is next due.
func (w *worker) keepVolumes(ctx context.Context, pod *corev1.Pod, seen *runtimeView, now time.Time) time.Time {
	never := now.Add(24 * time.Hour)
	if seen.sandbox() == nil {
		return never
	}
	if !w.stale && now.Before(w.refresh) {
		return w.refresh
	}
	w.stale = false
	if !w.mounted { // after a restart of this process
		if err := w.prepareVolumes(ctx, pod); err != nil {
			w.refresh = now.Add(lastRetry)
		}
		return w.refresh
	}
	due, err := w.engine.volumes.Refresh(ctx, pod)
	if ctx.Err() == nil {
		w.volumeWarnings(pod, err)
	}
	if due.IsZero() {
		due = never
	}
	w.refresh = due
	return due
}

// remove removes all that is left of a pod that has ended: containers, sandboxes,
// volumes, logs, state.
func (w *worker) remove(ctx context.Context, pod *corev1.Pod, seen *runtimeView) error {
	e := w.engine
	var errs []error
	removed := map[string]bool{}
	for _, box := range seen.sandboxes {
		errs = append(errs, e.removeSandbox(ctx, box.id))
		removed[box.id] = true
	}
	for _, incarnations := range seen.containers {
		for _, c := range incarnations {
			if c.recalled == nil && !removed[c.sandbox] { // it has gone without them
				errs = append(errs, e.removeContainer(ctx, c.id))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.removeCgroup(ctx, pod)
	w.disk.Lock()
	defer w.disk.Unlock()
	if err := e.volumes.Teardown(pod.UID); err != nil {
		return err
	}
	e.cfg.Objects.Forget(pod.UID)
	if err := os.RemoveAll(e.cfg.Node.LogDirectory(pod)); err != nil {
		return err
	}
	e.unlinkLogs(pod, e.cfg.Node.LogDirectory(pod))
	w.removed = true // nothing is written from here on
	return e.removeState(pod.UID)
}

// removeContainer removes a container from the runtime, if it is there.
func (e *Engine) removeContainer(ctx context.Context, id string) error {
	if err := e.cfg.Runtime.RemoveContainer(ctx, id); err != nil && !gone(err) {
		return err
	}
	e.known.forget(id)
	return nil
}

// gone tells whether the runtime has no such thing (any more).
func gone(err error) bool { return status.Code(err) == codes.NotFound || errdefs.IsNotFound(err) }

// hasten has what failed tried again, and volumes refreshed, now.
func (w *worker) hasten() {
	w.hurry.Store(true)
	w.nudge()
}

// takeHint does what hasten has asked for.
func (w *worker) takeHint() {
	if !w.hurry.Swap(false) {
		return
	}
	w.stale = true
	for name, f := range w.failures {
		f.until = time.Time{}
		w.failures[name] = f
	}
}
