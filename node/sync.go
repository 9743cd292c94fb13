package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// maxSteps bounds the actions that one visit of a pod takes.
const maxSteps = 8

// syncPod brings one pod name to where the API wants it, and ends what the provider
// holds of that name besides. Nothing else calls the provider about the name, but to
// ask for a status.
func (pc *PodController) syncPod(ctx context.Context, key string) (err error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil // made by keyOf: cannot happen, and a retry would not help
	}
	pod, err := pc.podInAPI(ctx, namespace, name)
	if err != nil {
		return err
	}
	if pod == nil && pc.records.get(key) == nil && pc.strays.orphans(key) == nil {
		pc.doubts.Delete(key)
		return nil
	}
	r := pc.records.getOrAdd(key)
	pc.takeUp(key, r)
	if v, a := pc.next(key, r, pod); takesLong(a.verb, v) && !queue.InLongLane(ctx) {
		return queue.ErrTakesLong
	}
	subject := r.subject(namespace, name, pod)
	ctx, span := startPodSpan(ctx, "syncPod", pc.syncs, key, subject)
	defer span.End()
	defer func() { span.SetStatus(err) }()
	err = pc.takeSteps(ctx, key, r, pod, subject.UID, span)
	if failed := pc.endOrphans(ctx, key, r); err == nil {
		err = failed
	}
	return err
}

// takeSteps acts on one pod name, until there is nothing to do for now, or the record
// is about another pod than the one of the UID: that has a visit of its own, so that
// log lines and spans carry the UID of the pod that they are about.
func (pc *PodController) takeSteps(ctx context.Context, key string, r *podRecord, pod *corev1.Pod, about types.UID, span trace.Span) error {
	begin, operation := time.Now(), operationSync
	defer func() { pc.metrics.worked(operation, begin) }()
	for range maxSteps {
		v, a := pc.next(key, r, pod)
		if v.heldUID != about {
			pc.syncs.Add(key)
			return nil
		}
		if a.guarded {
			pc.guardPods(ctx, r, pod)
		}
		switch a.verb {
		case doNothing:
			pc.dropIfOver(key, r, v)
			return nil
		case doWait:
			pc.syncs.Revisit(key, a.after)
			return nil
		case doRemove:
			pc.removals.Add(key)
			return nil
		}
		if callsProvider[a.verb] && takesLong(a.verb, v) != queue.InLongLane(ctx) {
			pc.syncs.Add(key) // to be taken in the lane where it belongs
			return nil
		}
		if !pc.mayAct(ctx, a.verb, r, pod) {
			pc.syncs.AddAfter(key, claimPoll)
			return nil
		}
		if rest := r.begins(a.verb); rest > 0 {
			pc.syncs.AddAfter(key, rest)
			return nil
		}
		if kind := operationOf[a.verb]; kind != "" {
			operation = kind
			r.causedBy(span)
		}
		if err := pc.perform(ctx, a.verb, key, r, pod); errors.Is(err, errNotWanted) {
			pc.syncs.Add(key) // to be decided upon again, by what is wanted now
			return nil
		} else if err != nil {
			return err
		}
	}
	// No pod needs as many: something answers now this, now that.
	pc.syncs.AddAfter(key, time.Second)
	return nil
}

// mayAct reports whether this process may take an action, as far as its claim to the
// node tells.
func (pc *PodController) mayAct(ctx context.Context, do verb, r *podRecord, pod *corev1.Pod) bool {
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

// next decides on the next action for a pod name.
func (pc *PodController) next(key string, r *podRecord, pod *corev1.Pod) (view, action) {
	pc.follow(key, r, pod)
	pc.enforceDeadline(key, r, pod)
	v := pc.view(r, pod)
	if missesPod(v) {
		pc.guards(&v)
	}
	return v, decide(v)
}

// podInAPI returns the pod of this node that the API has under a name, or nil.
func (pc *PodController) podInAPI(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := pc.pods.Get(namespace, name)
	if errdefs.IsOnlyNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read pod %s/%s from the cache: %w", namespace, name, err)
	}
	if !pc.owns(ctx, pod) {
		return nil, nil
	}
	return pod, nil
}

// follow makes the record follow the API: to the newest form of its pod, or to
// a new pod once nothing is held of the old one. Only the sync does that.
func (pc *PodController) follow(key string, r *podRecord, pod *corev1.Pod) {
	_, missing := pc.doubts.LoadAndDelete(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doubtful = pod == nil && r.pod != nil && !r.theirs && (r.doubtful || missing)
	switch {
	case r.doubtful:
	case pod == nil && r.pod == nil:
		r.provider = absent // notified of, but never ours
		r.early = nil
	case pod == nil:
		r.handed, r.sent, r.stored = nil, nil, nil // nothing will be compared with them
	case r.pod == nil:
		r.adopt(pod)
		if r.early != nil && pc.isOf(r, r.early) && r.mayBeKnown(r.early) {
			r.said = &r.early.Status
			r.tell(r.said)
			pc.statuses.Add(key)
		}
		r.early = nil
	case r.uid() == pod.UID:
		r.renew(pod)
	case r.over():
		pc.objects.Forget(r.uid())
		pc.identity.leave(r.uid())
		next, keeps := r.next, r.shownAs != "" && r.shownAs == r.uid()
		r.adopt(pod)
		if keeps {
			r.shownAs = pod.UID // it has kept the UID before
		}
		if next != nil && next.uid == pod.UID {
			r.tell(next.status) // which the cache may not have yet
			pc.statuses.Add(key)
		}
		if pc.backend.byUID == nil {
			// Whatever a provider that goes by names still shows under this one
			// is the old pod: it cannot hold what it was not given yet.
			r.provider = absent
		}
	}
}

// over tells whether the record's pod is not held, and need not be deleted to
// make sure of that. r.mu is held.
func (r *podRecord) over() bool {
	return r.provider == absent && (!r.ran && !r.cancelled || r.asked != requestNone)
}

// view gathers what the decision about a pod depends on.
func (pc *PodController) view(r *podRecord, pod *corev1.Pod) view {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	v := view{
		now:       now,
		wish:      wishGone,
		provider:  r.provider,
		heldUID:   r.uid(),
		stopped:   r.stopped(),
		ran:       r.ran,
		cancelled: r.cancelled,
		asked:     r.asked,
		askedAt:   r.askedAt,
		inspected: r.inspected,
		missing:   r.missing,
		missedAt:  r.missedAt,
		patience:  pc.lostPodTimeout,
		removed:   r.removed,
		doubtful:  r.doubtful,
	}
	if pod == nil || pod.UID != v.heldUID {
		r.mustEnd(&v)
	}
	if pod == nil {
		return v
	}
	v.uid = pod.UID
	v.ran = v.ran || v.heldUID == v.uid && pod.Status.Phase == corev1.PodRunning
	reportedDone := v.heldUID == v.uid && r.report != nil && isTerminal(r.report.Phase)
	switch {
	case pod.DeletionTimestamp != nil:
		v.wish = wishStop
		r.mustEnd(&v)
	case isTerminal(pod.Status.Phase) || reportedDone || v.heldUID == v.uid && r.expired:
		v.wish = wishDone
		if v.provider == held && !v.stopped || mayHaveBegun(v) {
			r.mustEnd(&v)
		}
	default:
		v.wish = wishRun
		if v.heldUID == v.uid {
			r.ending = ending{}
		}
		v.changed = r.stale || r.handed != nil && specChanged(r.handed, pod)
	}
	return v
}

// mustEnd has the record's pod end, and the view say when it is to be killed. r.mu is
// held.
func (r *podRecord) mustEnd(v *view) {
	if r.pod == nil || v.doubtful && v.asked == requestNone {
		return
	}
	r.ending.ends(r.pod, v.now)
	v.deadline = r.ending.killAt()
}

// dropIfOver forgets a name that neither the API nor the provider has.
func (pc *PodController) dropIfOver(key string, r *podRecord, v view) {
	if v.wish != wishGone {
		return // decide has seen to it that nothing is held
	}
	pc.records.drop(key)
	pc.objects.Forget(v.heldUID)
	pc.identity.leave(v.heldUID)
	// A pod that was added between our look at the cache and the drop has its
	// own key in the queue, and starts with a new record.
}

// perform takes one action. An error means that it has to be tried again.
func (pc *PodController) perform(ctx context.Context, do verb, key string, r *podRecord, pod *corev1.Pod) error {
	log.G(ctx).WithField("action", string(do)).Debug("Acting on pod")
	switch do {
	case doInspect:
		return pc.inspect(ctx, key, r, pod)
	case doCreate:
		return pc.create(ctx, key, r, pod)
	case doUpdate:
		return pc.update(ctx, key, r, pod)
	case doStop:
		return pc.end(ctx, key, r, pod, requestStop)
	case doKill:
		return pc.end(ctx, key, r, pod, requestKill)
	case doRelease:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.provider = absent
		return nil
	case doLose:
		pc.lose(ctx, key, r, pod)
		return nil
	case doConfirm:
		return pc.confirmGone(ctx, r)
	}
	return errors.New("no such action: " + string(do))
}

// inspect asks the provider what it holds under the name.
func (pc *PodController) inspect(ctx context.Context, key string, r *podRecord, pod *corev1.Pod) error {
	asked := pc.heard.Load()
	r.mu.Lock()
	target := r.pod
	r.inspected = time.Now()
	fresh := pod != nil && pod.UID == target.UID && pod.DeletionTimestamp == nil && !r.ran
	r.mu.Unlock()

	found, err := pc.backend.find(ctx, target.Namespace, target.Name, target.UID)
	if err == nil && found == nil && fresh {
		found, err = pc.predecessor(ctx, target)
	}
	if err != nil {
		err = fmt.Errorf("cannot tell whether the provider holds the pod: %w", err)
		pc.warnOfOld(ctx, r, pod, target, ReasonProviderInspectFailed, err)
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case found == nil || !pc.mayBeOurs(ctx, found):
		r.missed(time.Now())
	case pc.isOf(r, found):
		pc.take(r, found, asked)
		pc.statuses.Add(key)
	case pod != nil && r.uid() == pod.UID && !r.ran:
		// An older pod of the same name: it was replaced while we were down.
		pc.objects.Forget(pod.UID) // until it is its turn
		next := r.verdict()
		pc.inherit(r, found, asked)
		r.next = next
	default: // what went before it, or what came after
		r.missed(time.Now())
	}
	return nil
}

// mayBeOurs tells whether nothing says that the provider's pod is of another node.
func (pc *PodController) mayBeOurs(ctx context.Context, found *corev1.Pod) bool {
	return found.Spec.NodeName == "" || pc.owns(ctx, found)
}

// take notes that the provider holds the record's pod. found is what the provider
// answered when it was asked, as the count of observations tells. r.mu is held.
func (pc *PodController) take(r *podRecord, found *corev1.Pod, asked uint64) {
	r.provider = held
	r.ran = true
	r.found()
	pc.shows(r, found)
	if r.handed == nil {
		r.handed = r.pod
		r.stale = outdated(found, r.pod)
		if !r.theirs {
			pc.objects.Follow(r.pod) // what it names is read on, as for a pod that was created
		}
	}
	pc.accept(r, &found.Status, asked)
}

// outdated tells whether a pod that was found after a restart surely has an
// older form than the API's. What the provider does not show, or has of its
// own, tells nothing: pods that ran are left alone.
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

func (pc *PodController) create(ctx context.Context, key string, r *podRecord, pod *corev1.Pod) error {
	if admitted, err := pc.admit(ctx, key, r, pod); !admitted {
		return err
	}
	ctx, done := pc.begin(ctx, key, r, pod)
	defer done()
	pc.startDeadline(key, r, pod)
	mine, err := pc.prepare(ctx, key, r, pod)
	if interrupted(ctx) {
		return errNotWanted
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.creating = true
	r.others.see(pod.Status.Conditions)
	before := r.handed
	r.handed = pod // what the provider says within the call is about this form
	r.mu.Unlock()
	err = pc.backend.create(ctx, mine)
	r.mu.Lock()
	r.creating = false
	r.provider = unknown
	if err != nil {
		r.handed = before
		r.cancelled = interrupted(ctx) // it may have come to be all the same
	} else {
		r.ran = true
		r.found()
		r.told = nil
		if pc.notifier != nil {
			r.provider = held
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
		pc.say(key, r, pod, status)
		if isTerminal(status.Phase) {
			return nil
		}
		return err
	}
	log.G(ctx).Info("Created pod in provider")
	pc.events.Event(pod, corev1.EventTypeNormal, ReasonProviderCreateSuccess, "Create pod in provider successfully")
	return nil
}

func (pc *PodController) update(ctx context.Context, key string, r *podRecord, pod *corev1.Pod) error {
	ctx, done := pc.begin(ctx, key, r, pod)
	defer done()
	mine, err := pc.prepare(ctx, key, r, pod)
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
			r.provider = unknown // it may have lost the pod, and not said so
			r.mu.Unlock()
		}
		pc.warn(ctx, r, pod, ReasonProviderUpdateFailed, err.Error())
		return err
	}
	if pc.admission != nil {
		pc.admission.ledger.Update(pod)
	}
	r.mu.Lock()
	r.handed = pod
	r.stale = false
	r.told = nil
	r.mu.Unlock()
	log.G(ctx).Info("Updated pod in provider")
	pc.events.Event(pod, corev1.EventTypeNormal, ReasonProviderUpdateSuccess, "Update pod in provider successfully")
	pc.statuses.Add(key) // the observed generation
	return nil
}

// prepare makes the copy that the provider is given, with its environment. If
// that lacks something, the pod waits for it.
func (pc *PodController) prepare(ctx context.Context, key string, r *podRecord, pod *corev1.Pod) (*corev1.Pod, error) {
	mine := pod.DeepCopy()
	pc.objects.Follow(pod)
	if pc.env == nil {
		return mine, nil
	}
	seen := pc.env.changes.Load()
	r.mu.Lock()
	var running *corev1.Pod
	if r.ran {
		running = r.handed
	}
	r.mu.Unlock()
	problems, err := pc.env.resolve(ctx, mine, running)
	r.mu.Lock()
	r.waitsFor = missingObjects(problems)
	created := r.ran
	r.mu.Unlock()
	if err != nil && pc.env.changes.Load() != seen {
		pc.syncs.Add(key) // it may have appeared before it was known to be missed
	}
	for _, problem := range problems {
		pc.warn(ctx, r, pod, problem.Reason, problem.Message)
	}
	if err != nil && !created {
		pc.say(key, r, pod, waitingForConfig(pod, err))
	}
	return mine, err
}

// end asks the provider for the end of the record's pod.
func (pc *PodController) end(ctx context.Context, key string, r *podRecord, pod *corev1.Pod, how request) error {
	r.mu.Lock()
	target, grace := r.pod, r.ending.grace
	r.mu.Unlock()
	if how == requestKill {
		grace = 0
	}
	found, err := pc.backend.delete(ctx, target, grace)
	if err != nil {
		pc.warnOfOld(ctx, r, pod, target, ReasonProviderDeleteFailed, err)
		return err
	}
	r.mu.Lock()
	first := r.asked == requestNone
	r.asked = how
	r.askedAt = time.Now()
	r.ending.stops(r.askedAt)
	r.inspected = time.Time{}
	if pc.notifier != nil {
		r.inspected = r.askedAt // it will tell
	}
	switch {
	case !found:
		r.provider = absent
	case r.provider == absent:
		r.provider = unknown // it knew the pod after all
	}
	r.mu.Unlock()
	log.G(ctx).WithField("request", string(how)).Info("Deleted pod in provider")
	if first && pod != nil && pod.UID == target.UID {
		pc.events.Event(pod, corev1.EventTypeNormal, ReasonProviderDeleteSuccess, "Delete pod in provider successfully")
		pc.statuses.Add(key) // the observed generation
	}
	return nil
}

// lose says that a pod that ran is no longer there.
func (pc *PodController) lose(ctx context.Context, key string, r *podRecord, pod *corev1.Pod) {
	log.G(ctx).Warn("The provider no longer knows a pod that it ran")
	pc.warn(ctx, r, pod, ReasonProviderLost, lostMessage)
	r.mu.Lock()
	latest := r.report
	r.mu.Unlock()
	pc.say(key, r, pod, lost(pod, latest, time.Now()))
}

// warnOfOld warns of what failed for old, the record's pod. Where the API has another
// one of that name by now, that is the one which waits, and which people look at.
func (pc *PodController) warnOfOld(ctx context.Context, r *podRecord, pod, old *corev1.Pod, reason string, err error) {
	if pod == nil || pod.UID == old.UID {
		pc.warn(ctx, r, old, reason, err.Error())
		return
	}
	pc.warn(ctx, r, pod, reason, fmt.Sprintf("an older pod of this name has to end first (%s): %v", old.UID, err))
}

// maxTold bounds what is remembered of the events about one pod.
const maxTold = 32

// warn records a warning event on a pod, unless the same was said since the
// last success. Failures that come of our own end are nobody's business.
func (pc *PodController) warn(ctx context.Context, r *podRecord, pod *corev1.Pod, reason, message string) {
	if ctx.Err() != nil {
		return
	}
	said := reason + ": " + message
	r.mu.Lock()
	_, known := r.told[said]
	if r.told == nil || len(r.told) >= maxTold {
		r.told = map[string]struct{}{}
	}
	r.told[said] = struct{}{}
	r.mu.Unlock()
	if !known {
		pc.events.Event(pod, corev1.EventTypeWarning, reason, message)
	}
}
