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
	defer func() { pc.cfg.Metrics.Worked(operation, begin) }()
	for range maxSteps {
		v, a := pc.next(r, pod)
		if a.guarded {
			pc.guardPods(ctx, r, pod, v.ran)
		} else if v.begun && !v.ran && missesPod(v) && a.verb == doWait {
			message := createAgainMessage
			if v.patience < 0 {
				message = neverAgainMessage
			}
			pc.warn(ctx, r, pod, ReasonProviderMissing, message)
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
			defer pc.occupy(ctx, r)()
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
		if !pc.cfg.Claim.MayBegin() {
			pc.warn(ctx, r, pod, ReasonNodeUnclaimed, unclaimedMessage)
			return false
		}
	case doStop, doKill:
		return pc.cfg.Claim.MayGoOn()
	case doLose:
		if !pc.cfg.Claim.MayGoOn() {
			r.askAgain()
			return false
		}
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
	pod, err := pc.cfg.Pods.Get(r.name.Namespace, r.name.Name)
	switch {
	case errdefs.IsOnlyNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read pod %s from the cache: %w", r.name, err)
	case pod.UID != r.id || !pc.cfg.PodEventFilter(ctx, pod):
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
	pod, err := pc.cfg.Pods.Get(name.Namespace, name.Name)
	if err != nil || !pc.cfg.PodEventFilter(context.Background(), pod) {
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
	inAPI := pod
	if pod == nil {
		inAPI = pc.current(r.name) // another one
	}
	olderFirst := pc.records.olderFirst(r, inAPI)
	r.mu.Lock()
	defer r.mu.Unlock()
	v := view{
		progress:    r.progress,
		now:         time.Now(),
		desired:     desiredGone,
		olderFirst:  olderFirst,
		stopped:     r.stopped(),
		patience:    pc.cfg.LostPodTimeout,
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
		if runsOn(v) {
			r.mustEnd(&v)
		}
	default:
		v.desired = desiredRun
		r.ending = ending{}
		v.changed = r.stale || r.lastApplied != nil && specChanged(r.lastApplied, pod)
	}
	return v
}

// mustEnd has the pod end, and the view have the time when it is to be killed. r.mu is
// held.
func (r *podRecord) mustEnd(v *view) {
	if v.unconfirmed && v.requested == requestedNone {
		return
	}
	r.ending.ends(r.pod, v.now)
	v.deadline = r.ending.killAt(r.pod)
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
	pc.cfg.Objects.Forget(r.id)
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
