package podengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
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
	hasEvent        bool          // an event of it was recorded
}

func (e *startError) Error() string { return e.message }

// startFailed is an error of a step of the start; one that has a reason keeps it. Of one of the runtime
// the message is what the runtime says.
func startFailed(reason string, err error) error {
	var known *startError
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &startError{reason: reason, message: status.Convert(err).Message()}
}

// makeSandbox makes a sandbox for the pod, and the volumes before it.
func (w *worker) makeSandbox(ctx context.Context, pod *corev1.Pod, seen *runtimeView) error {
	if rejected, err := w.rejectGroups(ctx, pod); rejected || err != nil {
		return err
	}
	if err := w.prepareVolumes(ctx, pod, seen); err != nil {
		return err
	}
	if seen.sandbox() != nil {
		w.engine.cfg.Events.Event(pod, corev1.EventTypeNormal, eventSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
	}
	err := w.replaceSandbox(ctx, pod, seen)
	if ctx.Err() == nil {
		w.check(pod, "", eventSandboxFailed, "Failed to create pod sandbox: ", err)
	}
	return err
}

// replaceSandbox makes a sandbox in place of those that there are.
func (w *worker) replaceSandbox(ctx context.Context, pod *corev1.Pod, seen *runtimeView) error {
	if err := w.retireSandboxes(ctx, seen); err != nil {
		return err
	}
	attempt := uint32(0)
	if old := seen.sandbox(); old != nil {
		attempt = old.attempt + 1
	}
	handler, err := w.engine.runtimeHandler(ctx, pod)
	if err != nil {
		return err
	}
	if err := w.engine.allocateUserNamespace(ctx, pod, handler); err != nil {
		return err
	}
	config, err := w.sandboxConfig(ctx, pod, attempt)
	if err != nil {
		return err
	}
	w.setCgroup(ctx, pod)
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return err
	}
	call, cancel := outlasting(ctx)
	defer cancel()
	_, err = w.engine.cfg.Runtime.RunPodSandbox(call, config, handler)
	return err
}

// retireSandboxes has lost sandboxes give back what they still hold of the
// network, and removes those that have no containers to remember.
func (w *worker) retireSandboxes(ctx context.Context, seen *runtimeView) error {
	for i, box := range seen.sandboxes {
		if err := w.engine.stopSandbox(ctx, box.id); err != nil {
			return fmt.Errorf("cannot stop the sandbox of before: %w", err)
		}
		if i == 0 || seen.inhabited(box) { // the newest has the count of attempts
			continue
		}
		if err := w.engine.removeSandbox(ctx, box.id); err != nil {
			return fmt.Errorf("cannot remove a sandbox of before: %w", err)
		}
	}
	return nil
}

// sandboxConfig is the configuration of a pod's sandbox.
func (w *worker) sandboxConfig(ctx context.Context, pod *corev1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	e := w.engine
	dns, warnings := e.podDNS(pod)
	for _, warning := range warnings {
		w.warn(pod, "", warning.Reason, warning.Message)
	}
	users, err := e.userNamespace(pod)
	if err != nil {
		return nil, err
	}
	parent, err := e.cgroupParent(ctx, pod)
	if err != nil {
		return nil, err
	}
	return e.cfg.Node.Sandbox(pod, convert.SandboxOptions{
		Attempt:       attempt,
		DNS:           dns,
		CgroupParent:  parent,
		UserNamespace: users,
	})
}

// prepareVolumes puts the pod's volumes on disk.
func (w *worker) prepareVolumes(ctx context.Context, pod *corev1.Pod, seen *runtimeView) error {
	ctx, span := startSpan(ctx, "prepareVolumes", pod)
	prepare := w.engine.volumes.Prepare
	if seen.sandbox() != nil && w.startedSinceBoot() { // it was made when all of them were there
		prepare = w.engine.volumes.Restore
	}
	err := prepare(ctx, pod)
	endSpan(span, &err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.volumeWarnings(pod, err, nil)
	if err != nil {
		return err
	}
	w.mounted = true
	w.refreshWhenDue(pod)
	return nil
}

// prepareMore sets up volumes that an ephemeral container is the first to mount. Those that others
// have mounted are neither touched nor waited for.
func (w *worker) prepareMore(ctx context.Context, pod *corev1.Pod, volumes []string) error {
	err := w.engine.volumes.PrepareMore(ctx, pod, volumes)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.volumeWarnings(pod, err, volumes)
	w.refreshWhenDue(pod)
	return err
}

// mountsFirst returns the volumes that an ephemeral container is the first to mount.
func mountsFirst(pod *corev1.Pod, seen *runtimeView, k kind, c *corev1.Container) (volumes []string) {
	if k != ephemeralKind {
		return nil
	}
	there := map[string]bool{}
	eachContainer(pod, func(k kind, other *corev1.Container) {
		if k != ephemeralKind || seen.newest(other.Name) != nil {
			for i := range other.VolumeMounts {
				there[other.VolumeMounts[i].Name] = true
			}
		}
	})
	for i := range c.VolumeMounts {
		if name := c.VolumeMounts[i].Name; !there[name] {
			volumes = append(volumes, name)
		}
	}
	return volumes
}

// refreshWhenDue sets when the contents of the pod's volumes are refreshed next.
func (w *worker) refreshWhenDue(pod *corev1.Pod) {
	if w.refresh = w.engine.volumes.Due(pod.UID); w.refresh.IsZero() {
		w.refresh = time.Now().Add(24 * time.Hour)
	}
}

// volumeWarnings warns of the volumes that could not be set up, of those that were tried: all
// if none is named.
func (w *worker) volumeWarnings(pod *corev1.Pod, err error, tried []string) {
	failed := map[string]error{}
	var failures volume.Failures
	if errors.As(err, &failures) { // there are no other errors
		for _, f := range failures {
			failed[f.Volume] = f
		}
	}
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		if tried != nil && !slices.Contains(tried, name) {
			continue
		}
		w.check(pod, "volume "+name, eventMountFailed, "", failed[name])
	}
}

// startContainer pulls the image of a container, makes and starts it, and runs
// its postStart hook.
func (w *worker) startContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, name string) error {
	k, c := findContainer(pod, name)
	if c == nil || seen.sandbox() == nil {
		return nil
	}
	if !w.mounted { // after a restart of this process
		if err := w.prepareVolumes(ctx, pod, seen); err != nil {
			return err
		}
	} else if volumes := mountsFirst(pod, seen, k, c); len(volumes) > 0 {
		if err := w.prepareMore(ctx, pod, volumes); err != nil {
			return err
		}
	}
	attempt := uint32(0)
	if old := seen.newest(name); old != nil {
		attempt = old.attempt + 1
		w.crashed(c, old)
		w.collect(ctx, pod, seen.containers[name])
	}
	id, err := w.createContainer(ctx, pod, seen, k, c, attempt)
	if err == nil {
		err = w.recordStart(pod, c, id, attempt)
	}
	if err == nil {
		err = startFailed(reasonRun, w.launch(ctx, id))
	}
	if ctx.Err() == nil {
		w.containerFailed(pod, name, err)
	}
	if err != nil {
		return err
	}
	return w.launched(ctx, pod, seen, c, &container{id: id, name: name, attempt: attempt})
}

// mostLaunches is how often the start of a container that was created before may
// fail until it is made again.
const mostLaunches = 3

// launchCreated starts a container that was created before, by an earlier process
// perhaps. A start that was asked for then may be under way, or come first.
func (w *worker) launchCreated(ctx context.Context, pod *corev1.Pod, seen *runtimeView, a action) error {
	_, c := findContainer(pod, a.container)
	inc := seen.byID(a.container, a.id)
	if c == nil || inc == nil {
		return nil
	}
	if !w.mounted {
		if err := w.prepareVolumes(ctx, pod, seen); err != nil {
			return err
		}
	}
	if old := seen.previous(a.container); old != nil {
		w.crashed(c, old)
	}
	if err := w.recordStart(pod, c, a.id, inc.attempt); err != nil {
		return err
	}
	err := w.launch(ctx, a.id)
	if err == nil {
		return w.launched(ctx, pod, seen, c, inc)
	}
	response, unknown := w.engine.cfg.Runtime.ContainerStatus(ctx, a.id, false)
	switch shown := response.GetStatus(); {
	case unknown == nil && shown.GetStartedAt() != 0:
		return w.launched(ctx, pod, seen, c, inc)
	case unknown == nil && shown.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED:
		err = startFailed(reasonRun, err)
		w.containerFailed(pod, a.container, err)
	default:
		w.launches[a.id]++
	}
	return err
}

// launch starts a container.
func (w *worker) launch(ctx context.Context, id string) error {
	call, cancel := outlasting(ctx)
	defer cancel()
	return w.engine.cfg.Runtime.StartContainer(call, id)
}

// launched says that a container was started, and runs its postStart hook.
func (w *worker) launched(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container) error {
	w.engine.linkLog(ctx, pod, inc)
	w.engine.containerEvent(pod, c.Name, corev1.EventTypeNormal, eventStarted, "Container started")
	return w.afterStart(ctx, pod, seen, c, &container{id: inc.id, name: c.Name, phase: running, started: time.Now()})
}

// createContainer pulls the image of a container and makes the container.
func (w *worker) createContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, k kind, c *corev1.Container, attempt uint32) (string, error) {
	box := seen.sandbox()
	inside, err := w.sandboxConfig(ctx, pod, box.attempt)
	if err != nil {
		return "", startFailed(reasonConfig, err)
	}
	pulled, err := w.pull(ctx, pod, c, box, inside)
	if err != nil {
		return "", err
	}
	config, err := w.containerConfig(ctx, pod, seen, k, c, attempt, pulled)
	if err != nil {
		return "", startFailed(reasonConfig, err)
	}
	id, err := w.engine.cfg.Runtime.CreateContainer(ctx, box.id, config, inside)
	if err != nil {
		return "", startFailed(reasonCreate, err)
	}
	w.engine.containerEvent(pod, c.Name, corev1.EventTypeNormal, eventCreated, "Container created")
	return id, nil
}

// containerFailed warns of a container that could not be started. What has an
// event of its own, a pull, is left out.
func (w *worker) containerFailed(pod *corev1.Pod, name string, err error) {
	var known *startError
	if errors.As(err, &known) && known.hasEvent {
		return
	}
	w.check(pod, name, eventFailed, "Error: ", err)
}

// afterStart runs the postStart hook of a container, which is killed if that
// fails. Why is in the container's status and the log, not in the event, as with a kubelet:
// the command, and what it has printed, may have secrets.
func (w *worker) afterStart(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	var failed error
	w.whileRefreshing(ctx, func() { failed = w.engine.runHook(ctx, pod, seen, c, inc, c.Lifecycle.PostStart) })
	if failed == nil || ctx.Err() != nil {
		return nil
	}
	w.engine.containerEvent(pod, c.Name, corev1.EventTypeWarning, eventPostStartFailed, "PostStartHook failed")
	log.G(ctx).WithError(failed).WithField("container", c.Name).Warn("A postStart hook failed")
	by := time.Now().Add(podspec.GracePeriod(pod, nil))
	if err := w.stopContainer(ctx, pod, seen, c, inc, by, eventPostStartFailed, nil); err != nil {
		return err
	}
	return &startError{reason: reasonHook, message: failed.Error()}
}

// containerConfig is the configuration of a container.
func (w *worker) containerConfig(ctx context.Context, pod *corev1.Pod, seen *runtimeView, k kind, c *corev1.Container, attempt uint32, pulled pulled) (*runtimeapi.ContainerConfig, error) {
	resolved, env, err := w.environment(ctx, pod, seen, c)
	if err != nil {
		return nil, err
	}
	mounts, err := w.mounts(ctx, pod, seen, resolved, attempt)
	if err != nil {
		return nil, err
	}
	users, err := w.engine.userNamespace(pod)
	if err != nil {
		return nil, err
	}
	options := convert.ContainerOptions{
		Attempt:       attempt,
		ImageRef:      pulled.ref,
		Image:         pulled.image,
		Env:           env,
		Mounts:        mounts,
		Annotations:   map[string]string{resourcesAnnotation: resourcesOf(c)},
		UserNamespace: users,
	}
	if k == ephemeralKind {
		if options.TargetID, err = targetOf(pod, seen, c.Name); err != nil {
			return nil, err
		}
	}
	return w.engine.cfg.Node.Container(pod, resolved, options)
}

// targetOf is the container whose processes an ephemeral container sees, if it is to see those of one.
// That has to be there: the ephemeral container is never started again to see them.
func targetOf(pod *corev1.Pod, seen *runtimeView, name string) (string, error) {
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name && c.TargetContainerName != "" {
			if target := seen.newest(c.TargetContainerName); target != nil {
				return target.id, nil
			}
			return "", fmt.Errorf("unable to find target container %s", c.TargetContainerName)
		}
	}
	return "", nil
}

// environment resolves the environment of a container, and what refers to it.
func (w *worker) environment(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container) (*corev1.Container, []corev1.EnvVar, error) {
	alone := onlyEnvironmentOf(pod, c)
	hosts := w.engine.cfg.HostIPs()
	alone.Status.HostIPs, alone.Status.HostIP = nil, ""
	if box := seen.sandbox(); box != nil {
		o := podspec.Status(pod, podspec.Observation{PodIPs: w.engine.podIPs(pod, box), HostIPs: hosts}, nil, alone.CreationTimestamp)
		alone.Status.PodIP, alone.Status.PodIPs = o.PodIP, o.PodIPs
		alone.Status.HostIP, alone.Status.HostIPs = o.HostIP, o.HostIPs
	}
	options := podenv.Options{
		HostIPs: hosts,
		File: func(volume, path string) ([]byte, error) {
			return w.engine.volumes.ReadFile(pod, volume, path)
		},
	}
	if w.engine.cfg.NodeAllocatable != nil {
		options.NodeAllocatable = w.engine.cfg.NodeAllocatable()
	}
	if w.engine.cfg.Sent {
		escapeResolved(&alone.Spec.Containers[len(alone.Spec.Containers)-1])
	}
	problems, err := podenv.Resolve(alone, podenv.NewSource(ctx, w.engine.cfg.Objects, w.engine.cfg.Services), options)
	for _, p := range problems {
		if !p.Fatal {
			w.warn(pod, c.Name, p.Reason, p.Message)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	resolved := &alone.Spec.Containers[len(alone.Spec.Containers)-1]
	resolved.Image = c.Image
	return resolved, resolved.Env, nil
}

// onlyEnvironmentOf is the pod with nothing to resolve but a container, which
// comes last. Of the others the resources stay, which it may refer to.
func onlyEnvironmentOf(pod *corev1.Pod, c *corev1.Container) *corev1.Pod {
	alone := pod.DeepCopy()
	var all []corev1.Container
	eachContainer(alone, func(_ kind, other *corev1.Container) {
		if other.Name != c.Name {
			all = append(all, corev1.Container{Name: other.Name, Resources: other.Resources})
		}
	})
	alone.Spec.InitContainers, alone.Spec.EphemeralContainers = nil, nil
	alone.Spec.Containers = append(all, *c.DeepCopy())
	return alone
}

// mounts are all that a container has mounted.
func (w *worker) mounts(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, attempt uint32) ([]convert.Mount, error) {
	var mounts []convert.Mount
	hasHosts := false
	for i := range c.VolumeMounts {
		mount, err := w.mount(ctx, pod, seen, c, c.VolumeMounts[i].DeepCopy())
		if err != nil {
			return nil, err
		}
		hasHosts = hasHosts || mount.ContainerPath == hostsPath
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

// mount is what a container has mounted of a volume.
func (w *worker) mount(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, m *corev1.VolumeMount) (convert.Mount, error) {
	if m.SubPathExpr != "" {
		expanded, err := podenv.ExpandStrict(m.SubPathExpr, c.Env)
		if err != nil {
			return convert.Mount{}, fmt.Errorf("cannot expand the subPathExpr of mount %s: %w", m.MountPath, err)
		}
		m.SubPathExpr = expanded
	}
	if v := imageVolume(pod, m.Name); v != nil {
		return w.imageMount(ctx, pod, seen, v, m)
	}
	path, readOnly, err := w.engine.volumes.HostPath(pod, m)
	if err != nil {
		return convert.Mount{}, err
	}
	recursive, err := w.engine.recursiveReadOnly(ctx, seen.sandbox().handler, m)
	if err != nil {
		return convert.Mount{}, err
	}
	return convert.Mount{
		HostPath:          path,
		ContainerPath:     m.MountPath,
		ReadOnly:          readOnly,
		RecursiveReadOnly: recursive,
		SELinuxRelabel:    w.engine.volumes.Relabel(pod, m),
		Propagation:       m.MountPropagation,
	}, nil
}

// recursiveReadOnly reports whether what is mounted below a mount is to be read-only
// too. The runtime is asked only where that depends on it.
func (e *Engine) recursiveReadOnly(ctx context.Context, handler string, m *corev1.VolumeMount) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	features, err := e.handlerFeatures(ctx, handler)
	if err != nil {
		return false, err
	}
	return convert.RecursiveReadOnly(m, features.GetRecursiveReadOnlyMounts())
}

const (
	hostsPath = "/etc/hosts"
	etcHosts  = "etc-hosts" // in the pod's directory
)

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
	file := filepath.Join(e.podDir(pod.UID), etcHosts)
	content := podspec.Hosts(pod, ips, e.cfg.Node.ClusterDomain, host)
	if hasContent(file, content) {
		return file, nil
	}
	// Not by rename: containers that run have this very file mounted.
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return "", fmt.Errorf("cannot write the hosts file: %w", err)
	}
	return file, nil
}

// hasContent reports whether a file has this content. It reads little more than that:
// containers can make their files of any size.
func hasContent(path string, content []byte) bool {
	file, err := os.Open(path) // #nosec G304 -- the engine's own
	if err != nil {
		return false
	}
	defer file.Close()
	has, err := io.ReadAll(io.LimitReader(file, int64(len(content))+1))
	return err == nil && bytes.Equal(has, content)
}

// terminationLog is where a container may leave a message about its end.
func (e *Engine) terminationLog(pod *corev1.Pod, name string, attempt uint32) string {
	return filepath.Join(e.podDir(pod.UID), "containers", name, strconv.FormatUint(uint64(attempt), 10))
}

func (e *Engine) makeTerminationLog(pod *corev1.Pod, name string, attempt uint32) (string, error) {
	path := e.terminationLog(pod, name, attempt)
	dir := filepath.Dir(path)
	err := os.MkdirAll(dir, 0o755)
	if err == nil { // regardless of the umask: without mounts the container's user passes through them
		err = errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755))
	}
	if err != nil {
		return "", fmt.Errorf("cannot make the termination log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err == nil {
		err = errors.Join(file.Chmod(0o666), file.Close()) // regardless of the umask: any user may write it
	}
	if err != nil {
		return "", fmt.Errorf("cannot make the termination log: %w", err)
	}
	return path, nil
}
