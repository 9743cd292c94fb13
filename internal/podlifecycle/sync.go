package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// unclaimedMessage is that of the event on a pod that waits since the lease could not be
// renewed.
const unclaimedMessage = "the node's lease could not be renewed for its duration, so that another process may have taken the node: waiting for the API server"

// claimInterval is how often a claim is looked at that does not allow an action.
const claimInterval = 2 * time.Second

// maxSteps bounds the actions that one visit of a pod takes.
const maxSteps = 8

// operationOf is how an action counts in the metrics.
var operationOf = map[verb]string{doCreate: providercalls.OperationCreate, doUpdate: providercalls.OperationUpdate,
	doStop: providercalls.OperationKill, doKill: providercalls.OperationKill}

// syncPod brings one pod to where the API wants it. Nothing else calls the provider about
// the pod, but to ask for its status.
func (pc *Controller) syncPod(ctx context.Context, key string) (err error) {
	r := pc.records.get(types.UID(key))
	if r == nil {
		return nil
	}
	pod, err := pc.podInAPI(ctx, r)
	if err != nil {
		return err
	}
	if v, a := pc.next(r, pod); takesLong(a.verb, v) && !queue.InLongLane(ctx) {
		return queue.ErrTakesLong
	}
	ctx, span := startPodSpan(ctx, "syncPod", pc.syncs, key, r.form())
	defer span.End()
	defer func() { span.SetStatus(err) }()
	return pc.act(ctx, r, pod, span)
}

// act acts on a pod until there is nothing to do for now.
func (pc *Controller) act(ctx context.Context, r *podRecord, pod *corev1.Pod, span trace.Span) error {
	begin, operation := time.Now(), providercalls.OperationSync
	defer func() { pc.metrics.Worked(operation, begin) }()
	for range maxSteps {
		v, a := pc.next(r, pod)
		if a.guarded {
			pc.guardPods(ctx, r, pod)
		} else if v.begun && !v.ran && missesPod(v) && a.verb == doWait {
			pc.warn(ctx, r, pod, ReasonProviderMissing, createAgainMessage)
		}
		switch a.verb {
		case doNothing:
			if v.olderFirst { // what was done about the older one may have been given up
				for _, other := range pc.records.named(r.name) {
					if other != r {
						pc.syncs.AddUnlessDelayed(other.key())
					}
				}
			}
			pc.dropIfOver(ctx, r, v)
			return nil
		case doWait:
			pc.syncs.Revisit(r.key(), a.after)
			return nil
		case doRemove:
			pc.removals.Add(r.key())
			return nil
		}
		if callsProvider[a.verb] && takesLong(a.verb, v) != queue.InLongLane(ctx) {
			pc.syncs.Add(r.key()) // to be taken in the lane where it belongs
			return nil
		}
		if !pc.mayAct(ctx, a.verb, r, pod) {
			pc.syncs.AddAfter(r.key(), claimInterval)
			return nil
		}
		if rest := r.begins(a.verb); rest > 0 {
			pc.syncs.AddAfter(r.key(), rest)
			return nil
		}
		if kind := operationOf[a.verb]; kind != "" {
			operation = kind
			r.causedBy(span)
		}
		err := func() error {
			defer pc.occupy(ctx, r, a.verb)()
			return pc.perform(ctx, a.verb, r, pod)
		}()
		if errors.Is(err, errNotWanted) {
			pc.syncs.Add(r.key()) // to be decided upon again, by what is wanted now
			return nil
		}
		if err != nil {
			return err
		}
	}
	// No pod needs as many: something answers now this, now that.
	pc.syncs.AddAfter(r.key(), time.Second)
	return nil
}

// mayAct reports whether the claim of this process to the node allows an action.
func (pc *Controller) mayAct(ctx context.Context, do verb, r *podRecord, pod *corev1.Pod) bool {
	switch do {
	case doCreate, doUpdate:
		if !pc.claim.MayBegin() {
			pc.warn(ctx, r, pod, ReasonNodeUnclaimed, unclaimedMessage)
			return false
		}
	case doStop, doKill:
		return pc.claim.MayGoOn()
	}
	return true
}

// next decides on the next action for a pod.
func (pc *Controller) next(r *podRecord, pod *corev1.Pod) (view, action) {
	r.see(pod)
	pc.enforceDeadline(r, pod)
	v := pc.view(r, pod)
	if missesPod(v) {
		pc.guards(&v)
	}
	return v, decide(v)
}

// podInAPI returns the API's form of a pod, or nil if the API does not have it, or has
// another one under its name.
func (pc *Controller) podInAPI(ctx context.Context, r *podRecord) (*corev1.Pod, error) {
	pod, err := pc.pods.Get(r.name.Namespace, r.name.Name)
	switch {
	case errdefs.IsOnlyNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read pod %s from the cache: %w", r.name, err)
	case pod.UID != r.id || !pc.owns(ctx, pod):
		return nil, nil
	}
	return pod, nil
}

// recordInAPI returns the record of a key in the queues and the API's form of its pod, which
// is nil if there is none of either.
func (pc *Controller) recordInAPI(ctx context.Context, key string) (*podRecord, *corev1.Pod, error) {
	r := pc.records.get(types.UID(key))
	if r == nil {
		return nil, nil, nil
	}
	pod, err := pc.podInAPI(ctx, r)
	return r, pod, err
}

// current returns the node's pod of a name in the API, or nil.
func (pc *Controller) current(name types.NamespacedName) *corev1.Pod {
	pod, err := pc.pods.Get(name.Namespace, name.Name)
	if err != nil || !pc.owns(context.Background(), pod) {
		return nil
	}
	return pod
}

// isCurrent reports whether the cache has a pod.
func (pc *Controller) isCurrent(pod *corev1.Pod) bool {
	current := pc.current(nameOf(pod))
	return current != nil && current.UID == pod.UID
}

// see records what the API has of the pod; nil: nothing. Only the sync does that.
func (r *podRecord) see(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pod != nil {
		r.gone = false
		r.renew(pod)
	} else if !r.unconfirmed(pod) {
		r.lastApplied, r.sent, r.stored = nil, nil, nil // nothing will be compared with them
	}
}

// view gathers what the decision about a pod depends on. pod is the API's, or nil.
func (pc *Controller) view(r *podRecord, pod *corev1.Pod) view {
	olderFirst := pc.olderFirst(r, pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	v := view{
		now:         now,
		desired:     desiredGone,
		olderFirst:  olderFirst,
		observed:    r.observed,
		stopped:     r.stopped(),
		ran:         r.ran,
		cancelled:   r.cancelled,
		begun:       r.begun,
		requested:   r.requested,
		requestedAt: r.requestedAt,
		inspectedAt: r.inspectedAt,
		missing:     r.missing,
		missedAt:    r.missedAt,
		patience:    pc.lostPodTimeout,
		removed:     r.removed,
		unconfirmed: r.unconfirmed(pod),
	}
	if pod == nil {
		r.mustEnd(&v)
		return v
	}
	v.ran = v.ran || pod.Status.Phase == corev1.PodRunning
	switch {
	case pod.DeletionTimestamp != nil:
		v.desired = desiredStop
		r.mustEnd(&v)
	case isTerminal(pod.Status.Phase) || r.ended() || r.expired:
		v.desired = desiredDone
		if v.observed == held && !v.stopped || mayHaveBegun(v) {
			r.mustEnd(&v)
		}
	default:
		v.desired = desiredRun
		r.ending = ending{}
		v.changed = r.stale || r.lastApplied != nil && specChanged(r.lastApplied, pod)
	}
	return v
}

// olderFirst reports whether another pod of the name goes first: for the pod that the API
// has, all others, and for the others those that were there before.
func (pc *Controller) olderFirst(r *podRecord, pod *corev1.Pod) bool {
	if pod != nil || pc.records.alone(r) {
		return !pc.records.alone(r)
	}
	var inAPI types.UID
	if current := pc.current(r.name); current != nil {
		inAPI = current.UID
	}
	return pc.records.hasOlder(r, inAPI)
}

// mustEnd has the pod end, and the view have the time when it is to be killed. r.mu is
// held.
func (r *podRecord) mustEnd(v *view) {
	if v.unconfirmed && v.requested == requestedNone {
		return
	}
	r.ending.ends(r.pod, v.now)
	v.deadline = r.ending.killAt()
}

// dropIfOver forgets a pod that neither the API nor the provider has. One of its name
// may have waited for that.
func (pc *Controller) dropIfOver(ctx context.Context, r *podRecord, v view) {
	if v.desired != desiredGone {
		return // decide has seen to it that nothing is held
	}
	pod := r.form()
	others := pc.records.drop(r)
	pc.backend.forget(r.id, pod)
	pc.objects.Forget(r.id)
	for _, other := range others {
		pc.syncs.Add(other.key())
	}
	if again, err := pc.podInAPI(ctx, r); err == nil && again != nil {
		pc.appears(ctx, again) // since our look at the cache
	}
}

// perform takes one action. An error means that it has to be tried again.
func (pc *Controller) perform(ctx context.Context, do verb, r *podRecord, pod *corev1.Pod) error {
	log.G(ctx).WithField("action", string(do)).Debug("Acting on pod")
	switch do {
	case doInspect:
		return pc.inspect(ctx, r, pod)
	case doCreate:
		return pc.create(ctx, r, pod)
	case doUpdate:
		return pc.update(ctx, r, pod)
	case doStop:
		return pc.end(ctx, r, pod, requestedStop)
	case doKill:
		return pc.end(ctx, r, pod, requestedKill)
	case doRelease:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.observed = absent
		return nil
	case doLose:
		pc.lose(ctx, r, pod)
		return nil
	case doConfirm:
		return pc.confirmGone(ctx, r)
	}
	return errors.New("no such action: " + string(do))
}

// inspect asks the provider for the pod.
func (pc *Controller) inspect(ctx context.Context, r *podRecord, pod *corev1.Pod) error {
	since := pc.observations.Load()
	r.mu.Lock()
	target := r.pod
	fresh := pod != nil && pod.DeletionTimestamp == nil && !r.ran
	r.mu.Unlock()

	found, namesake, err := pc.backend.find(ctx, r.id, target)
	var namesakes []*corev1.Pod
	if namesake != nil && pod != nil && !r.hasRun() {
		namesakes = append(namesakes, namesake) // else what went before it, or what came after
	} else if err == nil && found == nil && fresh {
		namesakes, err = pc.findNamesakes(ctx, target)
	}
	if err != nil {
		err = fmt.Errorf("cannot determine whether the provider holds the pod: %w", err)
		pc.warnOfOld(ctx, r, target, ReasonProviderInspectFailed, err)
		return err
	}
	for _, namesake := range namesakes {
		if pc.mayBeOurs(ctx, namesake) { // it was replaced while we were down
			pc.adoptOrphan(namesake.DeepCopy(), true, since)
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.inspectedAt = time.Now() // a question without an answer says nothing of the pod
	if found == nil || !pc.mayBeOurs(ctx, found) {
		r.missed(time.Now())
		return nil
	}
	pc.recordHeld(r, found, since)
	pc.statuses.Add(r.key())
	return nil
}

// hasRun reports whether the provider held the pod at some time.
func (r *podRecord) hasRun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ran
}

// mayBeOurs reports whether nothing says that the provider's pod is of another node.
func (pc *Controller) mayBeOurs(ctx context.Context, found *corev1.Pod) bool {
	return found.Spec.NodeName == "" || pc.owns(ctx, found)
}

// recordHeld records that the provider holds the pod. found is what it answered to a question
// that was asked at a count of observations. r.mu is held.
func (pc *Controller) recordHeld(r *podRecord, found *corev1.Pod, since uint64) {
	r.observed = held
	r.ran = true
	r.found()
	pc.backend.hold(r.id, r.pod, found)
	if r.lastApplied == nil {
		r.lastApplied = r.pod
		r.stale = outdated(found, r.pod)
		if !r.orphan {
			pc.objects.Follow(r.pod) // what it names is read on, as for a pod that was created
		}
	}
	pc.accept(r, &found.Status, since)
}

// outdated reports whether a pod that was found after a restart surely has an
// older form than the API's. What the provider does not show, or has of its
// own, means nothing: pods that ran are left alone.
func outdated(found, pod *corev1.Pod) bool {
	if observed := pod.Status.ObservedGeneration; observed != 0 && observed < pod.Generation {
		return true
	}
	if found.UID != pod.UID {
		return false
	}
	return len(found.Labels) > 0 && lacks(found.Labels, pod.Labels) ||
		len(found.Annotations) > 0 && lacks(found.Annotations, pod.Annotations)
}

func lacks(m, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, ok := m[key]; !ok || has != value {
			return true
		}
	}
	return false
}

func (pc *Controller) create(ctx context.Context, r *podRecord, pod *corev1.Pod) error {
	if admitted, err := pc.admit(ctx, r, pod); !admitted {
		return err
	}
	ctx, done := pc.begin(ctx, r, pod)
	defer done()
	pc.startDeadline(r, pod)
	mine, err := pc.prepare(ctx, r, pod)
	if interrupted(ctx) {
		return errNotWanted
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.creating = true
	r.others.see(pod.Status.Conditions)
	before := r.lastApplied
	r.lastApplied = pod // what the provider says within the call is about this form
	r.mu.Unlock()
	err = pc.backend.create(ctx, mine)
	r.mu.Lock()
	r.creating = false
	r.observed = unknown
	if err != nil {
		r.lastApplied = before
		r.cancelled = interrupted(ctx) // it may have come to be all the same
	} else {
		r.ran = true
		r.found()
		r.warned = nil
		if pc.notifier != nil {
			r.observed = held
		} // else ask right away, rather than at the next round
	}
	r.mu.Unlock()

	if err != nil && interrupted(ctx) {
		log.G(ctx).WithError(err).Info("Cancelled the creation of a pod that is not wanted any more")
		return errNotWanted
	}
	if err != nil {
		pc.warn(ctx, r, pod, ReasonProviderCreateFailed, err.Error())
		status := failedCreate(pod, err)
		pc.decideStatus(r, pod, status)
		if isTerminal(status.Phase) {
			return nil
		}
		return err
	}
	log.G(ctx).Info("Created pod in provider")
	pc.events.Event(pod, corev1.EventTypeNormal, ReasonProviderCreateSuccess, "Create pod in provider successfully")
	return nil
}

func (pc *Controller) update(ctx context.Context, r *podRecord, pod *corev1.Pod) error {
	ctx, done := pc.begin(ctx, r, pod)
	defer done()
	mine, err := pc.prepare(ctx, r, pod)
	if interrupted(ctx) {
		return errNotWanted
	}
	if err != nil {
		return err
	}
	if err := pc.backend.update(ctx, mine); err != nil {
		if interrupted(ctx) {
			log.G(ctx).WithError(err).Info("Cancelled the update of a pod that is not wanted any more")
			return errNotWanted
		}
		if errdefs.IsOnlyNotFound(err) {
			r.mu.Lock()
			r.observed = unknown // it may have lost the pod without a notification
			r.mu.Unlock()
		}
		pc.warn(ctx, r, pod, ReasonProviderUpdateFailed, err.Error())
		return err
	}
	if pc.admission != nil {
		pc.admission.ledger.Update(pod)
	}
	r.mu.Lock()
	r.lastApplied = pod
	r.stale = false
	r.warned = nil
	r.mu.Unlock()
	log.G(ctx).Info("Updated pod in provider")
	pc.events.Event(pod, corev1.EventTypeNormal, ReasonProviderUpdateSuccess, "Update pod in provider successfully")
	pc.statuses.Add(r.key()) // the observed generation
	return nil
}

// prepare makes the copy that the provider is given, with its environment. If
// that lacks something, the pod waits for it.
func (pc *Controller) prepare(ctx context.Context, r *podRecord, pod *corev1.Pod) (*corev1.Pod, error) {
	mine := pod.DeepCopy()
	pc.objects.Follow(pod)
	if pc.env == nil {
		return mine, nil
	}
	seen := pc.env.changes.Load()
	r.mu.Lock()
	var running *corev1.Pod
	if r.ran {
		running = r.lastApplied
	}
	r.mu.Unlock()
	problems, err := pc.env.resolve(ctx, mine, running)
	r.mu.Lock()
	r.waitsFor = missingObjects(problems)
	created := r.ran
	r.mu.Unlock()
	if err != nil && pc.env.changes.Load() != seen {
		pc.syncs.Add(r.key()) // it may have appeared before it was known to be missed
	}
	for _, problem := range problems {
		pc.warn(ctx, r, pod, problem.Reason, problem.Message)
	}
	if err != nil && !created {
		pc.decideStatus(r, pod, waitingForConfig(pod, err))
	}
	return mine, err
}

// end asks the provider for the end of the record's pod.
func (pc *Controller) end(ctx context.Context, r *podRecord, pod *corev1.Pod, how requested) error {
	r.mu.Lock()
	target, grace := r.pod, r.ending.grace
	r.mu.Unlock()
	if how == requestedKill {
		grace = 0
	}
	found, err := pc.backend.delete(ctx, r.id, target, grace)
	if err != nil {
		pc.warnOfOld(ctx, r, target, ReasonProviderDeleteFailed, err)
		return err
	}
	r.mu.Lock()
	first := r.requested == requestedNone
	r.requested = how
	r.requestedAt = time.Now()
	r.ending.stops(r.requestedAt)
	r.inspectedAt = time.Time{}
	if pc.notifier != nil {
		r.inspectedAt = r.requestedAt // it will tell
	}
	switch {
	case !found:
		r.observed = absent
	case r.observed == absent:
		r.observed = unknown // it knew the pod after all
	}
	r.mu.Unlock()
	log.G(ctx).WithField("request", string(how)).Info("Deleted pod in provider")
	if first && pod != nil {
		pc.events.Event(pod, corev1.EventTypeNormal, ReasonProviderDeleteSuccess, "Delete pod in provider successfully")
		pc.statuses.Add(r.key()) // the observed generation
	}
	return nil
}

// lose says that a pod that ran is no longer there.
func (pc *Controller) lose(ctx context.Context, r *podRecord, pod *corev1.Pod) {
	log.G(ctx).Warn("The provider no longer knows a pod that it ran")
	pc.warn(ctx, r, pod, ReasonProviderLost, lostMessage)
	r.mu.Lock()
	latest := r.desiredStatus
	r.mu.Unlock()
	pc.decideStatus(r, pod, lost(pod, latest, time.Now()))
}

// warnOfOld warns of what failed for old, the record's pod. Where the API has another
// one of that name by now, that is the one which waits, and which people look at.
func (pc *Controller) warnOfOld(ctx context.Context, r *podRecord, old *corev1.Pod, reason string, err error) {
	waits := pc.current(r.name)
	if waits == nil || waits.UID == r.id {
		pc.warn(ctx, r, old, reason, err.Error())
		return
	}
	if next := pc.records.get(waits.UID); next != nil {
		pc.warn(ctx, next, waits, reason, fmt.Sprintf("an older pod of this name has to end first (%s): %v", old.UID, err))
	}
}

// maxWarned bounds what is remembered of the events about one pod.
const maxWarned = 32

// warn records a warning event on a pod, unless the same was recorded since
// the last success. Failures that come of our own end are not recorded.
func (pc *Controller) warn(ctx context.Context, r *podRecord, pod *corev1.Pod, reason, message string) {
	if ctx.Err() != nil {
		return
	}
	warning := reason + ": " + message
	r.mu.Lock()
	_, known := r.warned[warning]
	if r.warned == nil || len(r.warned) >= maxWarned {
		r.warned = map[string]struct{}{}
	}
	r.warned[warning] = struct{}{}
	r.mu.Unlock()
	if !known {
		pc.events.Event(pod, corev1.EventTypeWarning, reason, message)
	}
}
