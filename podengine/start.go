package podengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// The reasons why a container waits, in the kubelet's words.
const (
	reasonConfig = "CreateContainerConfigError"
	reasonCreate = "CreateContainerError"
	reasonRun    = "RunContainerError"
	reasonHook   = "PostStartHookError"
)

// startError is why a container could not be started, as its status says it.
type startError struct {
	reason, message string
	delay           time.Duration // until the next attempt; zero means the default
}

func (e *startError) Error() string { return e.message }

// makeSandbox makes a sandbox for the pod, and the volumes before it.
func (w *worker) makeSandbox(ctx context.Context, pod *corev1.Pod, seen *runtimeView) error {
	e := w.engine
	if err := w.prepareVolumes(ctx, pod); err != nil {
		return err
	}
	attempt := uint32(0)
	if old := seen.sandbox(); old != nil {
		attempt = old.attempt + 1
		e.cfg.Events.Event(pod, corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	config, err := w.sandboxConfig(pod, attempt)
	if err == nil {
		err = os.MkdirAll(config.LogDirectory, 0o755)
	}
	if err == nil {
		_, err = e.cfg.Runtime.RunPodSandbox(ctx, config, "")
	}
	if err != nil && ctx.Err() == nil {
		w.warn(pod, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
	}
	return err
}

// sandboxConfig is the configuration of a pod's sandbox.
func (w *worker) sandboxConfig(pod *corev1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	e := w.engine
	dns, warnings := e.cfg.DNS.ForPod(pod)
	for _, warning := range warnings {
		w.warn(pod, warning.Reason, warning.Message)
	}
	return e.cfg.Node.Sandbox(pod, convert.SandboxOptions{Attempt: attempt, DNS: dns, CgroupParent: e.cfg.CgroupParent})
}

// prepareVolumes puts the pod's volumes on disk.
func (w *worker) prepareVolumes(ctx context.Context, pod *corev1.Pod) error {
	err := w.engine.volumes.Prepare(ctx, pod)
	if err == nil {
		w.mounted = true
		w.refresh = w.engine.volumes.Due(pod.UID)
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	var failures volume.Failures
	if !errors.As(err, &failures) {
		w.warn(pod, "FailedMount", err.Error())
	}
	for _, f := range failures {
		w.warn(pod, "FailedMount", f.Error())
	}
	return err
}

// startContainer pulls the image of a container, makes and starts it, and runs
// its postStart hook.
func (w *worker) startContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, name string) error {
	e := w.engine
	k, c := findContainer(pod, name)
	box := seen.sandbox()
	if c == nil || box == nil {
		return nil
	}
	if !w.mounted { // after a restart
		if err := w.prepareVolumes(ctx, pod); err != nil {
			return err
		}
	}
	attempt := uint32(0)
	if old := seen.newest(name); old != nil {
		attempt = old.attempt + 1
		w.crashed(old)
		w.collect(ctx, seen.containers[name])
	}
	inside, err := w.sandboxConfig(pod, box.attempt)
	if err != nil {
		return &startError{reason: reasonConfig, message: err.Error()}
	}
	pulled, err := w.pull(ctx, pod, c, inside)
	if err != nil {
		return err
	}
	config, err := w.containerConfig(ctx, pod, seen, k, c, attempt, pulled)
	if err != nil {
		if ctx.Err() == nil {
			w.containerWarning(pod, name, "Failed", "Error: "+err.Error())
		}
		return &startError{reason: reasonConfig, message: err.Error()}
	}
	id, err := e.cfg.Runtime.CreateContainer(ctx, box.id, config, inside)
	if err != nil {
		if ctx.Err() == nil {
			w.containerWarning(pod, name, "Failed", "Error: "+message(err))
		}
		return &startError{reason: reasonCreate, message: message(err)}
	}
	e.containerEvent(pod, name, corev1.EventTypeNormal, "Created", "Container created")
	if err := e.cfg.Runtime.StartContainer(ctx, id); err != nil {
		if ctx.Err() == nil {
			w.containerWarning(pod, name, "Failed", "Error: "+message(err))
		}
		return &startError{reason: reasonRun, message: message(err)}
	}
	e.containerEvent(pod, name, corev1.EventTypeNormal, "Started", "Container started")
	return w.afterStart(ctx, pod, seen, c, &container{id: id, name: name, started: time.Now()})
}

// afterStart runs the postStart hook of a container, which is killed if that
// fails.
func (w *worker) afterStart(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	err := w.engine.runHook(ctx, pod, seen, c, inc, c.Lifecycle.PostStart)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	w.containerWarning(pod, c.Name, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
	w.engine.containerEvent(pod, c.Name, corev1.EventTypeNormal, "Killing", "FailedPostStartHook")
	if err := w.stopContainer(ctx, pod, seen, c, inc, time.Now().Add(podspec.GracePeriod(pod, nil))); err != nil {
		return err
	}
	return &startError{reason: reasonHook, message: err.Error()}
}

// containerConfig is the configuration of a container.
func (w *worker) containerConfig(ctx context.Context, pod *corev1.Pod, seen *runtimeView, k kind, c *corev1.Container, attempt uint32, pulled pulled) (*runtimeapi.ContainerConfig, error) {
	resolved, env, err := w.environment(ctx, pod, seen, c)
	if err != nil {
		return nil, err
	}
	mounts, err := w.mounts(pod, seen, resolved, attempt)
	if err != nil {
		return nil, err
	}
	options := convert.ContainerOptions{Attempt: attempt, ImageRef: pulled.ref, Image: pulled.image, Env: env, Mounts: mounts}
	if k == ephemeralKind {
		options.TargetID = targetOf(pod, seen, c.Name)
	}
	return w.engine.cfg.Node.Container(pod, resolved, options)
}

// targetOf is the container whose processes an ephemeral container sees.
func targetOf(pod *corev1.Pod, seen *runtimeView, name string) string {
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name && c.TargetContainerName != "" {
			if target := seen.newest(c.TargetContainerName); target != nil {
				return target.id
			}
		}
	}
	return ""
}

// environment resolves the environment of a container, and what refers to it.
func (w *worker) environment(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container) (*corev1.Container, []corev1.EnvVar, error) {
	alone := pod.DeepCopy()
	alone.Spec.InitContainers, alone.Spec.EphemeralContainers = nil, nil
	alone.Spec.Containers = []corev1.Container{*c.DeepCopy()}
	hosts := w.engine.hostIPs()
	alone.Status.HostIPs, alone.Status.HostIP = nil, ""
	if box := seen.sandbox(); box != nil {
		o := podspec.Status(pod, podspec.Observation{PodIPs: w.engine.podIPs(pod, box), HostIPs: hosts}, nil, alone.CreationTimestamp)
		alone.Status.PodIP, alone.Status.PodIPs = o.PodIP, o.PodIPs
		alone.Status.HostIP, alone.Status.HostIPs = o.HostIP, o.HostIPs
	}
	options := podenv.Options{HostIPs: hosts}
	if w.engine.cfg.NodeAllocatable != nil {
		options.NodeAllocatable = w.engine.cfg.NodeAllocatable()
	}
	problems, err := podenv.Resolve(alone, podSource{ctx, w.engine}, options)
	for _, p := range problems {
		if !p.Fatal {
			w.containerWarning(pod, c.Name, p.Reason, p.Message)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	resolved := &alone.Spec.Containers[0]
	resolved.Image = c.Image
	return resolved, resolved.Env, nil
}

// podSource is where environments get objects from.
type podSource struct {
	ctx context.Context
	e   *Engine
}

func (s podSource) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return s.e.cfg.Objects.ConfigMap(s.ctx, namespace, name)
}

func (s podSource) Secret(namespace, name string) (*corev1.Secret, error) {
	return s.e.cfg.Objects.Secret(s.ctx, namespace, name)
}

func (s podSource) Services(namespace string) ([]*corev1.Service, error) {
	return s.e.cfg.Services.Services(namespace).List(labels.Everything())
}

// mounts are all that a container has mounted.
func (w *worker) mounts(pod *corev1.Pod, seen *runtimeView, c *corev1.Container, attempt uint32) ([]convert.Mount, error) {
	var mounts []convert.Mount
	hasHosts := false
	for i := range c.VolumeMounts {
		m := c.VolumeMounts[i].DeepCopy()
		if m.SubPathExpr != "" {
			expanded, err := podenv.ExpandStrict(m.SubPathExpr, c.Env)
			if err != nil {
				return nil, fmt.Errorf("cannot expand the subPathExpr of mount %s: %w", m.MountPath, err)
			}
			m.SubPathExpr = expanded
		}
		hasHosts = hasHosts || m.MountPath == hostsPath
		path, readOnly, err := w.engine.volumes.HostPath(pod, m)
		if err != nil {
			return nil, err
		}
		mount := convert.Mount{HostPath: path, ContainerPath: m.MountPath, ReadOnly: readOnly, SELinuxRelabel: true}
		mount.Propagation = m.MountPropagation
		mounts = append(mounts, mount)
	}
	if !hasHosts {
		file, err := w.hostsFile(pod, seen)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, convert.Mount{HostPath: file, ContainerPath: hostsPath, SELinuxRelabel: true})
	}
	if c.TerminationMessagePath != "" {
		file, err := w.engine.makeTerminationLog(pod, c.Name, attempt)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, convert.Mount{HostPath: file, ContainerPath: c.TerminationMessagePath, SELinuxRelabel: true})
	}
	return mounts, nil
}

const hostsPath = "/etc/hosts"

// hostsFile writes the /etc/hosts of a pod's containers.
func (w *worker) hostsFile(pod *corev1.Pod, seen *runtimeView) (string, error) {
	e := w.engine
	var host []byte
	if e.cfg.HostsFile != nil {
		host = e.cfg.HostsFile()
	}
	var ips []string
	if box := seen.sandbox(); box != nil {
		ips = e.podIPs(pod, box)
	}
	file := filepath.Join(e.podDir(pod.UID), "etc-hosts")
	// Not by rename: containers that run have this very file mounted.
	if err := os.WriteFile(file, podspec.Hosts(pod, ips, e.cfg.Node.ClusterDomain, host), 0o644); err != nil {
		return "", fmt.Errorf("cannot write the hosts file: %w", err)
	}
	return file, nil
}

// terminationLog is where a container may leave a message about its end.
func (e *Engine) terminationLog(pod *corev1.Pod, name string, attempt uint32) string {
	return filepath.Join(e.podDir(pod.UID), "containers", name, strconv.FormatUint(uint64(attempt), 10))
}

func (e *Engine) makeTerminationLog(pod *corev1.Pod, name string, attempt uint32) (string, error) {
	path := e.terminationLog(pod, name, attempt)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", fmt.Errorf("cannot make the termination log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err == nil {
		err = errors.Join(file.Chmod(0o666), file.Close()) // whatever the umask: any user may write it
	}
	if err != nil {
		return "", fmt.Errorf("cannot make the termination log: %w", err)
	}
	return path, nil
}

// crashed counts that a container ended, and is started again: how long it stays
// down the next time.
func (w *worker) crashed(last *container) {
	if last.phase != exited {
		return
	}
	delay := w.crashes[last.name]
	if delay == 0 || last.finished.Sub(last.started) >= healthyAfter {
		delay = firstCrashDelay
	} else {
		delay = min(2*delay, lastCrashDelay)
	}
	w.crashes[last.name] = delay
}

// collect removes all but the newest incarnation of a container, whose log and
// end people may still ask for.
func (w *worker) collect(ctx context.Context, incarnations []*container) {
	for _, old := range incarnations[1:] {
		if old.phase == running {
			continue
		}
		if err := w.engine.cfg.Runtime.RemoveContainer(ctx, old.id); err != nil && !gone(err) {
			log.G(ctx).WithError(err).Warn("Cannot remove a container that has ended")
			continue
		}
		w.engine.known.forget(old.id)
		delete(w.messages, old.id)
	}
}

// warn records a warning about the pod, unless the same was said last.
func (w *worker) warn(pod *corev1.Pod, reason, message string) {
	w.engine.cfg.Events.Event(pod, corev1.EventTypeWarning, reason, message)
}

func (w *worker) containerWarning(pod *corev1.Pod, name, reason, message string) {
	w.engine.containerEvent(pod, name, corev1.EventTypeWarning, reason, message)
}

// message is an error of the runtime as a kubelet shows it.
func message(err error) string { return err.Error() }
