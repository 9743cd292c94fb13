package podengine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

const (
	// resync is how often the worker wakes although nothing has happened.
	resync = 90 * time.Second
	// The delays between attempts at what fails.
	firstRetry = time.Second
	lastRetry  = 10 * time.Second
	// The crash-loop back-off of containers, and how long one has to run for
	// it to be forgotten.
	firstCrashDelay = 10 * time.Second
	lastCrashDelay  = 5 * time.Minute
	healthyAfter    = 10 * time.Minute
)

// worker runs one pod: its goroutine alone acts on it.
type worker struct {
	engine  *Engine
	taken   time.Time     // when the node took the pod
	resumed bool          // from an earlier process
	wake    chan struct{} // has room for one
	hurry   atomic.Bool   // what failed is to be tried again at once

	released atomic.Bool   // the pod has ended, and given back what release has it give back
	empty    atomic.Bool   // once it has ended its containers are to be removed, too
	emptied  chan struct{} // closed when they were, or the worker ends

	disk    sync.Mutex // one write of the pod's state at a time
	removed bool       // the state was removed, for good; guarded by disk

	notifying sync.Mutex // so that the listener's last notification has the newest status

	mu sync.Mutex
	desired
	status *corev1.PodStatus
	// unwritten is set while status.json lacks what status has; runs is what of
	// it is known to outlast a failure of the machine.
	unwritten bool
	runs      string
	// unrecorded is set while pod.json lacks what is desired.
	unrecorded bool
	// observed is what status was made from by the worker last.
	observed *podspec.Observation
	abandon  context.CancelFunc    // ends the action under way; nil without one
	endings  map[string]*ending    // of containers that are being stopped, by ID
	warned   map[warning]statement // by the warnings that hold
	cause    *cause                // nil: what is done is nobody's request

	// What only the worker's goroutine uses.
	failures map[string]failure
	crashes  map[string]crash
	blind    time.Duration     // until the next look at a runtime that shows nothing
	absent   absence           // of what has run
	mounted  bool              // the volumes are there
	refresh  time.Time         // when they are next due
	stale    bool              // they may be out of date
	messages map[string]string // of containers that have ended, by ID
	applied  map[string]string // resources that containers were given since their start, by ID
	launches map[string]int    // that have failed, of containers that were created before, by ID
	cgroup   cgroupState
}

// desired is the desired state, which has to outlive the process.
type desired struct {
	pod    *corev1.Pod // the newest form, but for resources that it does not get
	resize *resize     // nil unless there are such
	stop   *stop       // nil: the pod is to run
	// attempts are the containers that were asked to start last, by name. The map
	// is never changed, but replaced.
	attempts map[string]attempt
	// superseded are the last attempts of containers that were ended to start all
	// containers again, by name. The map is never changed, but replaced.
	superseded map[string]uint32
	// restarting are the last attempts that are stopped, or were, to be started again
	// however they end, by name. The map is never changed, but replaced.
	restarting map[string]uint32
}

// wanted is the pod as the node applied it last.
func (d desired) wanted() *corev1.Pod {
	if d.resize != nil {
		return d.resize.wanted
	}
	return d.pod
}

// resize is a change of resources that the node has not made.
type resize struct {
	wanted  *corev1.Pod
	pending podspec.Resize
	since   time.Time // when one that is deferred began to wait
}

// stop is why and how a pod is to end.
type stop struct {
	deleted bool             // by the API; else the node ends it
	by      time.Time        // when what still runs is killed
	failure *podspec.Failure // nil unless the node ends it
}

// failure is an action that failed.
type failure struct {
	until           time.Time // when it is tried again
	delay           time.Duration
	reason, message string
}

func newWorker(e *Engine, pod *corev1.Pod, taken time.Time) *worker {
	return &worker{
		engine:   e,
		wake:     make(chan struct{}, 1),
		emptied:  make(chan struct{}),
		desired:  desired{pod: pod},
		taken:    taken,
		failures: map[string]failure{},
		endings:  map[string]*ending{},
		warned:   map[warning]statement{},
		crashes:  map[string]crash{},
		messages: map[string]string{},
		applied:  map[string]string{},
		launches: map[string]int{},
	}
}

// nudge wakes the worker.
func (w *worker) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// change persists the new desired state before the worker acts on it, so that a
// crash cannot undo a stop that has begun. If the write fails the change still
// applies; the error asks the caller to retry.
func (w *worker) change(f func(desired) desired) error {
	w.disk.Lock()
	defer w.disk.Unlock()
	next := f(w.desiredState())
	err := w.persist(next)
	w.mu.Lock()
	defer w.mu.Unlock()
	if next.stop.interrupts(w.stop) && w.abandon != nil {
		w.abandon()
	}
	w.desired, w.unrecorded = next, err != nil && !w.removed
	return err
}

// retryPersist writes the desired state again if it could not be written. The disk may
// have been full, and the end of this very pod may have freed space.
func (w *worker) retryPersist(ctx context.Context) {
	w.disk.Lock()
	defer w.disk.Unlock()
	w.mu.Lock()
	d, due := w.desired, w.unrecorded
	w.mu.Unlock()
	if !due {
		return
	}
	err := w.persist(d)
	if err != nil {
		log.G(ctx).WithError(err).Warn("Cannot record what is desired of the pod yet: a restart of this process before that loses it")
	}
	w.mu.Lock()
	w.unrecorded = err != nil && !w.removed
	w.mu.Unlock()
}

// onDisk reports whether all is written that has to outlive the process.
func (w *worker) onDisk() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.unrecorded && !w.unwritten
}

// desiredState is the desired state of now.
func (w *worker) desiredState() desired {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.desired
}

// update sets a newer version of the worker's pod.
func (w *worker) update(newer *corev1.Pod) error {
	err := w.engine.allocate(w, newer)
	w.engine.cfg.Objects.Follow(newer)
	w.hasten()
	return err
}

// end requests the end of the pod, or an earlier one, for which the action under way is
// cancelled.
func (w *worker) end(s stop) error {
	err := w.change(func(d desired) desired {
		d.stop = d.stop.and(s)
		return d
	})
	w.hasten()
	return err
}

// and is the end that is asked for by both: it is s itself if other brings nothing.
func (s *stop) and(other stop) *stop {
	if s == nil {
		return &other
	}
	if !other.by.Before(s.by) && (s.deleted || !other.deleted) {
		return s
	}
	other.failure = cmp.Or(s.failure, other.failure)
	other.deleted = other.deleted || s.deleted
	if s.by.Before(other.by) {
		other.by = s.by
	}
	return &other
}

// interrupts reports whether the action under way is given up for s, as in a kubelet:
// the pod was to run before, or its end has come nearer.
func (s *stop) interrupts(before *stop) bool {
	return s != nil && (before == nil || s.by.Before(before.by))
}

// delete asks for the end of the pod, for good. The pod may be gone, which is no
// error.
func (w *worker) delete(by time.Time) error {
	if err := w.end(stop{deleted: true, by: by}); !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}

func (w *worker) current() (*corev1.Pod, *stop) {
	pod, stop, _ := w.currentWithCause()
	return pod, stop
}

// currentWithCause is current with the request that caused the pod's last change.
func (w *worker) currentWithCause() (*corev1.Pod, *stop, *cause) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.stop, w.cause
}

// run runs the pod until it has ended and is deleted, or ctx ends.
func (w *worker) run(ctx context.Context) {
	pod, _ := w.current()
	ctx = log.WithLogger(ctx, log.G(ctx).WithFields(log.Fields{"namespace": pod.Namespace, "pod": pod.Name}))
	w.engine.cfg.Objects.Follow(pod)
	defer w.setEmptied()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		for again := true; again && ctx.Err() == nil; {
			var next time.Time
			var over bool
			next, again, over = w.step(ctx)
			if over {
				return
			}
			if retry := time.Now().Add(lastRetry); !w.onDisk() && retry.Before(next) {
				next = retry
			}
			timer.Reset(time.Until(next))
		}
	}
}

// step takes one action. It returns when to look again, or that it has to be at
// once, or that the pod is over.
func (w *worker) step(ctx context.Context) (next time.Time, again, over bool) {
	w.applyHint()
	w.retryPersist(ctx)
	if w.desiredState().isDeferred() {
		w.engine.retryDeferred()
	}
	pod, stop, cause := w.currentWithCause()
	seen, err := w.engine.observe(ctx, pod.UID)
	if err == nil {
		w.settleUnknown(seen)
		err = w.confirm(seen, time.Now())
	}
	if err != nil {
		return w.unseen(ctx, err), false, false
	}
	w.blind = 0
	w.updateProbes(pod, seen) // first: the decision depends on them
	v := w.view(pod, stop, seen)
	a := decide(v)
	w.recordHeld(pod, a.held, v.now)
	w.reconcileCgroup(ctx, pod, seen, a)
	phase := w.publish(ctx, pod, stop, seen, v.now, a.verb == doEnd)
	next = v.now.Add(resync)
	switch a.verb {
	case doNothing:
		if stop == nil && phase != corev1.PodPending {
			w.settled(cause)
		}
		if !a.at.IsZero() && a.at.Before(next) {
			next = a.at
		}
		if due := w.refreshVolumes(ctx, pod, seen, v.now); due.Before(next) {
			next = due
		}
		return next, false, false
	case doEnd:
		if stop != nil && stop.deleted {
			if next, over = w.finish(cause.below(ctx), pod, seen); !over {
				w.settled(cause)
			}
			return next, false, over
		}
		w.engine.retryDeferred() // there is room now
		if again := w.release(ctx, pod, stop, seen); again.Before(next) {
			next = again
		}
		w.retryPersist(ctx) // there may be room now
		return next, false, false
	}
	log.G(ctx).WithFields(log.Fields{"action": string(a.verb), "container": a.container}).Debug("Acting on pod")
	if err = w.perform(cause.below(ctx), a, pod, stop, seen); err != nil && !errors.Is(err, errAbandoned) {
		w.settled(cause)
	}
	w.recordOutcome(ctx, a, err)
	return next, true, false
}

// unseen returns when to look again at a runtime that does not show the pod.
func (w *worker) unseen(ctx context.Context, err error) time.Time {
	if w.blind == 0 && ctx.Err() == nil {
		log.G(ctx).WithError(err).Warn("Cannot see the pod in the runtime")
	}
	w.blind = periodic.Doubled(w.blind, firstRetry, lastRetry)
	return time.Now().Add(w.blind)
}

// view is what decide needs.
func (w *worker) view(pod *corev1.Pod, stop *stop, seen *runtimeView) *view {
	v := &view{
		now:        time.Now(),
		pod:        pod,
		started:    w.taken,
		stopping:   stop != nil,
		sandbox:    seen.sandbox(),
		vanished:   w.absent.replaceAt,
		containers: map[string]*container{},
		failed:     map[string]time.Time{},
		crashed:    map[string]time.Time{},
		applied:    w.applied,
		restarting: w.restartingOf(seen),
		probed:     w.engine.probed(pod),

		unstartable: map[string]bool{},
	}
	for id, n := range w.launches {
		v.unstartable[id] = n >= mostLaunches
	}
	for name := range seen.containers {
		v.containers[name] = seen.newest(name)
		for _, c := range seen.containers[name] {
			if c.mayRun() {
				v.containers[name] = c // an older one that was not stopped counts
			}
		}
		if w.isSuperseded(v.containers[name]) {
			delete(v.containers, name)
		}
	}
	eachContainer(pod, func(_ kind, c *corev1.Container) {
		v.crashed[c.Name], _ = w.downUntil(c, v.containers[c.Name], v.now)
	})
	for name, f := range w.failures {
		v.failed[name] = f.until
	}
	return v
}

// errAbandoned is the end of an action that was given up, since the pod is asked
// to end, or the engine is.
var errAbandoned = errors.New("it was given up")

// perform takes an action, until it is done, or the pod is asked to end.
func (w *worker) perform(ctx context.Context, a action, pod *corev1.Pod, stop *stop, seen *runtimeView) (err error) {
	ctx, span := startSpan(ctx, spanOf[a.verb], pod)
	annotate(span, attributeContainer, a.container)
	defer endSpan(span, &err)
	if end := deadlineOf(pod, w.taken); a.verb != doStop && a.verb != doExpire && !end.IsZero() {
		var expire context.CancelFunc
		ctx, expire = context.WithDeadline(ctx, end) // decide ends the pod then
		defer expire()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	if w.stop != stop {
		w.mu.Unlock()
		return errAbandoned // before it has begun
	}
	w.abandon = cancel
	w.mu.Unlock()
	err = w.act(ctx, a, pod, stop, seen)
	w.mu.Lock()
	w.abandon = nil
	w.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		return errAbandoned // regardless of the runtime's error
	}
	return err
}

func (w *worker) act(ctx context.Context, a action, pod *corev1.Pod, stop *stop, seen *runtimeView) error {
	switch a.verb {
	case doSandbox:
		return w.makeSandbox(ctx, pod, seen)
	case doStart:
		return w.startContainer(ctx, pod, seen, a.container)
	case doLaunch:
		return w.launchCreated(ctx, pod, seen, a)
	case doKill:
		return w.killContainer(ctx, pod, seen, a)
	case doDiscard:
		return w.discard(ctx, a.container, a.id)
	case doResize:
		return w.resizeContainer(ctx, pod, seen, a)
	case doExpire:
		w.expire(ctx, pod)
		return nil
	case doFail:
		w.failWithoutSandbox(ctx, pod)
		return nil
	case doRestart:
		return w.restartAll(ctx, pod, seen)
	case doStop:
		return w.checkStop(ctx, pod, a.again, w.stopPod(ctx, pod, stop, seen, a.again))
	}
	return errors.New("no such action: " + string(a.verb))
}

// recordOutcome records the outcome of an action: when it is retried, if it failed.
func (w *worker) recordOutcome(ctx context.Context, a action, err error) {
	if err == nil {
		if a.verb != doDiscard { // which makes room for another attempt at what failed
			delete(w.failures, a.container)
		}
		return
	}
	if errors.Is(err, errAbandoned) {
		return
	}
	log.G(ctx).WithError(err).WithFields(log.Fields{"action": string(a.verb), "container": a.container}).Warn("An action on the pod failed")
	f := failure{delay: periodic.Doubled(w.failures[a.container].delay, firstRetry, lastRetry), message: err.Error()}
	var known *startError
	if errors.As(err, &known) {
		f.reason, f.message = known.reason, known.message
		if known.delay > 0 {
			f.delay = known.delay
		}
	}
	f.until = time.Now().Add(f.delay)
	w.failures[a.container] = f
}

// publish makes the pod's status of what the runtime shows, and returns its phase.
func (w *worker) publish(ctx context.Context, pod *corev1.Pod, stop *stop, seen *runtimeView, now time.Time, ended bool) corev1.PodPhase {
	o := podspec.Observation{
		Statuses:  w.containerStatuses(ctx, pod, stop, seen, now),
		HostIPs:   w.engine.cfg.HostIPs(),
		StartTime: metav1.NewTime(w.taken),
		Ended:     ended,
	}
	if !ended {
		o.ResizePending, o.ResizeInProgress = w.resizes(pod, seen)
		w.recordResize(pod, stop, o.ResizeInProgress)
	}
	if stop != nil {
		o.Failure = stop.failure
	}
	o.Restarting = stop == nil && w.isRestarting(seen)
	if box := seen.sandbox(); box != nil && box.ready {
		o.Networked = true
		o.PodIPs = w.engine.podIPs(pod, box)
	}
	w.mu.Lock()
	w.observed = &o
	w.mu.Unlock()
	w.publishObserved(ctx, pod, o, &o, now)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status.Phase
}

// republish makes the pod's status of what was known of it last, and of what its
// probes say now. Unlike the rest of the worker's methods it is called from any
// goroutine.
func (w *worker) republish(ctx context.Context) {
	w.mu.Lock()
	pod, observed := w.pod, w.observed
	w.mu.Unlock()
	if observed == nil || observed.Ended {
		return
	}
	o := *observed
	o.Statuses = maps.Clone(o.Statuses)
	probes := w.engine.probes.Results(pod.UID)
	eachContainer(pod, func(k kind, c *corev1.Container) {
		if s, ok := o.Statuses[c.Name]; ok {
			applyProbes(&s, k, probes)
			o.Statuses[c.Name] = s
		}
	})
	w.publishObserved(ctx, pod, o, observed, time.Now())
}

// publishObserved makes the pod's status of o and notifies the listener if it is new,
// unless there is a newer observation than the one that o comes from.
func (w *worker) publishObserved(ctx context.Context, pod *corev1.Pod, o podspec.Observation, from *podspec.Observation, now time.Time) {
	w.mu.Lock()
	if w.observed != from {
		w.mu.Unlock()
		return
	}
	status := podspec.Status(pod, o, w.status, metav1.NewTime(now))
	if o.Ended && len(status.PodIPs) == 0 && w.status != nil {
		status.PodIP, status.PodIPs = w.status.PodIP, w.status.PodIPs // where it was
	}
	changed := w.status == nil || !equality.Semantic.DeepEqual(*w.status, status)
	before, unwritten := w.status, w.unwritten
	w.status = &status
	w.mu.Unlock()
	if !changed && !unwritten {
		return
	}
	countTerminations(w.engine.ended, before, &status)
	if err := w.persistStatus(); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot write the pod's status yet: a restart of this process before that may lose how its containers ended")
	}
	if !changed {
		return
	}
	w.notify()
}

// notify passes the pod with its status to the engine's listener, if there is one.
func (w *worker) notify() {
	w.notifying.Lock()
	defer w.notifying.Unlock()
	if notify := w.engine.listener(); notify != nil {
		notify(w.snapshot())
	}
}

// snapshot is the pod with its status, for others to keep.
func (w *worker) snapshot() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := w.wanted().DeepCopy()
	if w.status != nil {
		pod.Status = *w.status.DeepCopy()
	}
	return pod
}
