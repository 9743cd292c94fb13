package podlifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// inspect asks the provider for the pod.
func (pc *Controller) inspect(ctx context.Context, r *podRecord, pod *corev1.Pod) error {
	since := pc.observations.Load()
	r.mu.Lock()
	target := r.pod
	r.inspectedAt = time.Now() // also if it has no answer: what is due meanwhile is not held up
	fresh := pod != nil && pod.DeletionTimestamp == nil && !r.ran
	coming := pod != nil && r.coming(r.inspectedAt)
	comingUntil := r.createdAt.Add(comingPatience)
	r.mu.Unlock()

	found, namesake, err := pc.backend.find(ctx, r.id, target, coming)
	var namesakes []*corev1.Pod
	if namesake != nil && pod != nil && !r.hasRun() {
		namesakes = append(namesakes, namesake) // else what went before it, or what came after
	} else if err == nil && found == nil && fresh {
		namesakes, err = pc.findNamesakes(ctx, target)
	}
	if err != nil {
		r.askAgain() // the last question before a loss needs an answer
		if coming {
			pc.syncs.Revisit(r.key(), time.Until(comingUntil)) // also if it is not tried again before
		}
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
	// Once it was created, the pod of its name is this one, whichever node the provider has put it on: one that takes
	// pods to another cluster may show those of that cluster.
	created := r.ran || r.begun || r.pod.Status.Phase == corev1.PodRunning
	if found == nil || !created && !pc.mayBeOurs(ctx, found) {
		r.missed()
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
	return found.Spec.NodeName == "" || pc.cfg.PodEventFilter(ctx, found)
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
			pc.cfg.Objects.Follow(r.pod) // what it names is read on, as for a pod that was created
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
	if len(found.Labels) > 0 && lacks(found.Labels, pod.Labels) ||
		len(found.Annotations) > 0 && lacks(found.Annotations, pod.Annotations) {
		return true
	}
	if pod.Status.ObservedGeneration != 0 {
		return false
	}
	// API servers before 1.33 count no generations of pods, and those before 1.34 drop the observed one.
	if given := cmp.Or(found.Status.ObservedGeneration, found.Generation); given != 0 && pod.Generation != 0 {
		return given < pod.Generation
	}
	return specOutdated(&found.Spec, &pod.Spec)
}

// specOutdated is outdated for what can change in the spec of a pod that runs. Resources mean nothing: a
// provider may show what it sells, and an update may restart the containers.
func specOutdated(found, spec *corev1.PodSpec) bool {
	changed := func(found, wanted []corev1.Container) bool {
		return slices.ContainsFunc(found, func(c corev1.Container) bool {
			i := slices.IndexFunc(wanted, func(w corev1.Container) bool { return w.Name == c.Name })
			return i >= 0 && otherImage(c.Image, wanted[i].Image)
		})
	}
	return changed(found.Containers, spec.Containers) || changed(found.InitContainers, spec.InitContainers) ||
		len(found.Containers) > 0 && len(found.EphemeralContainers) < len(spec.EphemeralContainers) ||
		found.ActiveDeadlineSeconds != nil && !ptr.Equal(found.ActiveDeadlineSeconds, spec.ActiveDeadlineSeconds)
}

// otherImage reports whether a container surely has another image than the one that is wanted. One that is
// shown by its digest may be what the tag meant when it was pulled.
func otherImage(found, wanted string) bool {
	_, has, isDigest := strings.Cut(found, "@")
	_, wants, byDigest := strings.Cut(wanted, "@")
	switch {
	case found == "" || strings.HasPrefix(found, "sha256:") || isDigest != byDigest:
		return false
	case isDigest:
		return has != wants
	}
	return tagged(found) != tagged(wanted)
}

// tagged is an image without what names of Docker Hub may leave out. What parses references in full would be
// one more module for every program.
func tagged(image string) string {
	for _, prefix := range []string{"index.", "docker.io/", "library/"} {
		image = strings.TrimPrefix(image, prefix)
	}
	return strings.TrimSuffix(image, ":latest")
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
	r.mu.Lock()
	if r.begun { // from now on it is a pod like others, but for what an earlier process may have left
		r.begun, r.cancelled = false, true
	}
	r.mu.Unlock()
	mine, err := pc.prepare(ctx, r, pod)
	if interrupted(ctx) {
		return errNotWanted
	}
	if err != nil {
		return err
	}
	pc.startDeadline(r, pod)
	r.mu.Lock()
	r.creating = true
	r.others.see(pod.Status.Conditions)
	r.lastApplied = pod // what the provider says within the call is about this form
	r.mu.Unlock()
	err = pc.backend.create(ctx, mine)
	r.mu.Lock()
	r.creating = false
	r.observed = unknown
	if err != nil {
		r.lastApplied = nil
		r.cancelled = r.cancelled || interrupted(ctx) // it may have come to be all the same
	} else {
		r.ran, r.cancelled = true, false
		r.createdAt = time.Now()
		r.observation = pc.observations.Add(1) // what was asked before does not count
		r.found()
		r.warned = nil
		if pc.notifier != nil {
			r.observed = held
			// Until the provider notifies, the status does not go on saying why there was no pod before:
			// another process would take it for not created.
			own := r.desiredStatus == nil || r.desiredStatus != r.providerStatus
			if last := cmp.Or(r.desiredStatus, &pod.Status); own && last.Phase == corev1.PodPending && explainsFailure(last) {
				r.desire(nowCreated(last))
				pc.statuses.Add(r.key())
			}
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
	pc.cfg.EventRecorder.Event(pod, corev1.EventTypeNormal, ReasonProviderCreateSuccess, "Create pod in provider successfully")
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
	pc.cfg.EventRecorder.Event(pod, corev1.EventTypeNormal, ReasonProviderUpdateSuccess, "Update pod in provider successfully")
	pc.statuses.Add(r.key()) // the observed generation
	return nil
}

// prepare makes the copy that the provider is given, with its environment. If
// that lacks something, the pod waits for it.
func (pc *Controller) prepare(ctx context.Context, r *podRecord, pod *corev1.Pod) (*corev1.Pod, error) {
	mine := pod.DeepCopy()
	pc.cfg.Objects.Follow(pod)
	if pc.env == nil {
		return mine, nil
	}
	seen := pc.env.changes.Load()
	r.mu.Lock()
	running := r.lastApplied
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
	first := r.requested == requestedNone
	if first {
		r.endSince = pc.observations.Add(1)
	}
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
	r.requested = how
	r.requestedAt = time.Now()
	r.ending.stops(r.requestedAt)
	r.inspectedAt = time.Time{}
	if pc.notifier != nil && !r.mayHaveStopped() {
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
		pc.cfg.EventRecorder.Event(pod, corev1.EventTypeNormal, ReasonProviderDeleteSuccess, "Delete pod in provider successfully")
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
		pc.cfg.EventRecorder.Event(pod, corev1.EventTypeWarning, reason, message)
	}
}
