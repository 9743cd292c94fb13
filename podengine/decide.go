package podengine

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// decide names the next thing to do about a pod. It follows the kubelet's rules
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/), and
// depends on nothing but its argument.
func decide(v *view) action {
	d := decision{view: v}
	a := d.decide()
	a.held = d.held
	return a
}

func (d *decision) decide() action {
	restarts := d.restartsAll()
	switch {
	case d.stopping:
		return d.stop()
	case restarts == nil && d.done():
		return d.stop()
	case d.expired():
		return action{verb: doExpire}
	case restarts != nil:
		return d.restartAll(restarts)
	case d.sandbox == nil || !d.sandbox.ready:
		return d.place()
	}
	d.initialized = d.isInitialized()
	if a, ok := d.startEphemeral(); ok {
		return a
	}
	if a, ok := d.runInit(); ok {
		return a
	}
	if a, ok := d.runContainers(); ok {
		return a
	}
	return action{verb: doNothing, at: d.next}
}

// decision is one run of decide.
type decision struct {
	*view
	initialized bool      // in the sandbox of now
	next        time.Time // when to look again
	held        []string  // by name: what the crash-loop back-off keeps from its start
}

// wakeAt has the worker wake at a time.
func (d *decision) wakeAt(at time.Time) {
	if d.next.IsZero() || at.Before(d.next) {
		d.next = at
	}
}

// expired reports whether the pod has been active for longer than it may.
func (d *decision) expired() bool {
	deadline := deadlineOf(d.pod, d.started)
	if deadline.IsZero() {
		return false
	}
	if d.now.Before(deadline) {
		d.wakeAt(deadline)
		return false
	}
	return true
}

// deadlineOf is until when a pod may be active that the node took at a time; zero if
// there is no limit.
func deadlineOf(pod *corev1.Pod, started time.Time) time.Time {
	seconds := pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || started.IsZero() {
		return time.Time{}
	}
	return started.Add(time.Duration(*seconds) * time.Second)
}

// restartsAll is a container that has ended by itself and whose rules have all containers
// started again; nil if there is none.
func (d *decision) restartsAll() (source *container) {
	eachContainer(d.pod, func(k kind, c *corev1.Container) {
		inc := d.containers[c.Name]
		if k != ephemeralKind && inc != nil && inc.phase == exited && !d.restarting[inc.id] && podspec.RestartsAll(c, inc.exitCode) {
			source = inc
		}
	})
	return source
}

// restartAll starts all containers again, once the crash-loop back-off of the one
// that asks for it is over.
func (d *decision) restartAll(source *container) action {
	if d.later(d.crashed[source.name]) {
		d.held = append(d.held, source.name)
		return action{verb: doNothing, at: d.next}
	}
	if d.later(d.failed[source.name]) {
		return action{verb: doNothing, at: d.next}
	}
	return action{verb: doRestart, container: source.name}
}

// stop ends what still runs.
func (d *decision) stop() action {
	for _, c := range d.containers {
		if c.mayRun() {
			return d.stopAll()
		}
	}
	if d.sandbox != nil && d.sandbox.ready {
		return d.stopAll()
	}
	return action{verb: doEnd}
}

// stopAll stops all that runs, unless that has failed a short while ago.
func (d *decision) stopAll() action {
	if d.later(d.failed[""]) {
		return action{verb: doNothing, at: d.next}
	}
	return action{verb: doStop}
}

// later reports whether it is too early for something, and has the worker wake
// then.
func (d *decision) later(at time.Time) bool {
	if !d.now.Before(at) {
		return false
	}
	d.wakeAt(at)
	return true
}

// done reports whether no container is to be started again, and none of those that
// the pod is for runs.
func (d *decision) done() bool {
	for i := range d.pod.Spec.InitContainers {
		c := &d.pod.Spec.InitContainers[i]
		inc := d.containers[c.Name]
		if inc != nil && inc.phase == exited && inc.exitCode != 0 && !podspec.IsSidecar(c) && !d.startsAgain(c, inc) {
			return true
		}
	}
	for i := range d.pod.Spec.Containers {
		c := &d.pod.Spec.Containers[i]
		inc := d.containers[c.Name]
		if inc == nil || inc.phase != exited || d.startsAgain(c, inc) {
			return false
		}
	}
	return true
}

// startsAgain reports whether a container that has ended is to be started again: since it
// was stopped for that, or by its restart policy.
func (d *decision) startsAgain(c *corev1.Container, inc *container) bool {
	return d.restarting[inc.id] || podspec.ShouldRestart(d.pod, c, inc.exitCode)
}

// place makes a new sandbox, once nothing of the pod runs in an old one, or ends a pod that may not
// run in another one.
func (d *decision) place() action {
	for _, c := range d.containers {
		if c.mayRun() {
			a := d.stopAll()
			a.again = d.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
			return a
		}
	}
	if d.later(d.failed[""]) || d.sandbox == nil && d.later(d.vanished) {
		return action{verb: doNothing, at: d.next}
	}
	if d.hasRunOnce() {
		return action{verb: doFail}
	}
	return action{verb: doSandbox}
}

// hasRunOnce reports whether the pod is to run once and has begun, if only with an init container.
// As with a kubelet the pod's own restart policy counts, and not those of containers. If the runtime
// shows no sandbox at all a kubelet makes one, and only init containers count, which would run again in it.
func (d *decision) hasRunOnce() bool {
	if d.pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return false
	}
	for name, inc := range d.containers {
		k, c := findContainer(d.pod, name)
		if c == nil || k == ephemeralKind || inc.phase != exited {
			continue
		}
		if d.sandbox != nil || k == initKind && !d.startsAgain(c, inc) {
			return true
		}
	}
	return false
}

// isInitialized reports whether the init containers are past: once a container of
// the pod proper was made in a sandbox they do not run again in it.
func (d *decision) isInitialized() bool {
	for i := range d.pod.Spec.Containers {
		if d.here(d.pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// here returns the attempt of a container in the sandbox of now.
func (d *decision) here(name string) *container {
	if c := d.containers[name]; c != nil && c.sandbox == d.sandbox.id {
		return c
	}
	return nil
}

func (d *decision) startEphemeral() (action, bool) {
	for i := range d.pod.Spec.EphemeralContainers {
		name := d.pod.Spec.EphemeralContainers[i].Name
		if inc := d.containers[name]; inc == nil || inc.phase == created || inc.phase == aborted {
			if a, ok := d.start(name, inc); ok {
				return a, true
			}
		}
	}
	return action{}, false
}

// runInit has init containers run, one after the other, and sidecars all the
// time. There is an action, if only to wait, until the pod is initialized.
func (d *decision) runInit() (action, bool) {
	for i := range d.pod.Spec.InitContainers {
		c := &d.pod.Spec.InitContainers[i]
		inc := d.here(c.Name)
		sidecar := podspec.IsSidecar(c)
		if d.initialized && !sidecar {
			continue
		}
		if inc != nil && inc.phase == exited && inc.exitCode == 0 && !sidecar && !d.restarting[inc.id] {
			continue
		}
		if inc != nil && inc.mayRun() {
			if a, ok := d.kill(c, inc); ok && (sidecar || inc.phase == unknown || d.restarting[inc.id]) {
				return a, true
			}
			if sidecar && (d.initialized || d.probed[c.Name].started) {
				continue
			}
			return action{verb: doNothing, at: d.next}, true
		}
		if a, ok := d.start(c.Name, inc); ok {
			return a, true
		}
		if !d.initialized {
			return action{verb: doNothing, at: d.next}, true
		}
	}
	return action{}, false
}

func (d *decision) runContainers() (action, bool) {
	for i := range d.pod.Spec.Containers {
		c := &d.pod.Spec.Containers[i]
		inc := d.containers[c.Name]
		if inc != nil && inc.mayRun() {
			if a, ok := d.kill(c, inc); ok {
				return a, true
			}
			continue
		}
		if inc != nil && inc.phase == exited && !d.startsAgain(c, inc) {
			continue
		}
		if a, ok := d.start(c.Name, inc); ok {
			return a, true
		}
	}
	return action{}, false
}

// start starts a container, unless it is not yet time; inc is what there is of
// it already, or nil.
func (d *decision) start(name string, inc *container) (action, bool) {
	if d.later(d.failed[name]) {
		return action{}, false
	}
	if inc != nil && inc.phase == created && d.startable(inc) {
		return action{verb: doLaunch, container: name, id: inc.id}, true
	}
	if inc != nil && (inc.phase == created || inc.phase == aborted) {
		return action{verb: doDiscard, container: name, id: inc.id}, true
	}
	if inc != nil && inc.phase == exited && d.later(d.crashed[name]) {
		d.held = append(d.held, name)
		return action{}, false
	}
	return action{verb: doStart, container: name}, true
}

// startable reports whether a container that was created is to be started, rather
// than made again. It is, as far as that is possible: a process that was killed
// may have asked for its start, which may come at any moment. The runtime starts a
// container once, regardless of who asks, while one that is removed and made again has run
// twice if the start came in between.
func (d *decision) startable(inc *container) bool {
	if inc.sandbox != d.sandbox.id || d.unstartable[inc.id] {
		return false
	}
	_, c := findContainer(d.pod, inc.name)
	return c != nil && (inc.hash == "" || inc.hash == hashOf(c))
}

// kill stops a container that has to be started again, or that its probes say is not
// well, or gives it other resources.
func (d *decision) kill(c *corev1.Container, inc *container) (action, bool) {
	restarts := policyOf(d.pod, c) != corev1.RestartPolicyNever
	a := action{verb: doKill, container: c.Name, id: inc.id, again: true}
	resize, restart := resizeOf(c, inc, d.applied)
	switch {
	case inc.phase == unknown:
		a.why = "Container is in unknown state, try killing it before restarting"
		a.again = restarts
	case inc.hash != "" && inc.hash != hashOf(c):
		a.why = fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)
	case d.probed[c.Name].failed != "":
		a.why = d.probed[c.Name].failed
		if a.again = restarts || d.restarting[inc.id]; a.again {
			a.why += ", will be restarted"
		}
	case restart:
		a.why = fmt.Sprintf("Container %s resize requires restart", c.Name)
	case d.restarting[inc.id]: // its stop has not come to an end
		a.why, a.resumed = fmt.Sprintf("Container %s will be restarted", c.Name), true
	case resize:
		a.verb, a.again = doResize, false
	default:
		return action{}, false
	}
	return a, !d.later(d.failed[c.Name])
}
