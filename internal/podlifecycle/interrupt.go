package podlifecycle

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
)

// errNotWanted is the cause of the end of a provider call's context whose pod is not
// wanted any more.
var errNotWanted = errors.New("the pod is not wanted any more: it was deleted or replaced, has ended, or its deadline is over")

// abandonAfter is how long a call whose context was cancelled counts against the
// workers. One that goes on holds up its own pod only, from then on.
const abandonAfter = 30 * time.Second

// interruptible is a call that takes a pod on, or a change of it, and that ends early
// when the pod is not wanted any more.
type interruptible struct{ cancel context.CancelCauseFunc }

// begin returns the context of a call that ends early once the pod is not wanted any
// more, which it may not be already. done has to be called when the call has returned: from then on it ends with ctx alone.
func (pc *Controller) begin(ctx context.Context, r *podRecord, pod *corev1.Pod) (_ context.Context, done func()) {
	call := providercalls.NewLasting(ctx, ctx)
	ctx = call
	c := &interruptible{call.End}
	ctx = providercalls.WithRelease(ctx, func() { pc.release(r, c) })
	var expiry *time.Timer
	r.mu.Lock()
	r.call = c
	if end, limited := r.activeUntil(pod, time.Now()); limited {
		expiry = time.AfterFunc(time.Until(end), func() { pc.cancelCall(r, c) })
	}
	r.mu.Unlock()
	// What has changed before is in the cache, what changes from now on finds the call.
	pc.interrupt(ctx, r)
	return ctx, func() {
		r.mu.Lock()
		r.call = nil
		r.mu.Unlock()
		if expiry != nil {
			expiry.Stop()
		}
	}
}

// cancelCall cancels a call of a pod that is not wanted any more.
func (pc *Controller) cancelCall(r *podRecord, c *interruptible) {
	c.cancel(errNotWanted)
	time.AfterFunc(abandonAfter, func() { pc.release(r, c) })
}

// release has a call no longer count against the workers, unless it has returned.
func (pc *Controller) release(r *podRecord, c *interruptible) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.call == c {
		pc.syncs.Release(r.key())
	}
}

// interrupt cancels the call that is under way for a pod, if that is not wanted any more.
func (pc *Controller) interrupt(ctx context.Context, r *podRecord) {
	r.mu.Lock()
	c := r.call
	r.mu.Unlock()
	if c == nil {
		return
	}
	pod, err := pc.podInAPI(ctx, r)
	if err == nil && (pod == nil || pod.DeletionTimestamp != nil || isTerminal(pod.Status.Phase)) {
		pc.cancelCall(r, c)
	}
}

// interrupted reports whether a call's context has ended because its pod is not wanted
// any more.
func interrupted(ctx context.Context) bool { return context.Cause(ctx) == errNotWanted }

// takesLong reports whether an action belongs in the lane for calls that may take
// long, or hang: what it takes to run a pod. The end of pods does not wait behind it.
func takesLong(do verb, v view) bool {
	return v.desired == desiredRun && (do == doInspect || do == doCreate || do == doUpdate)
}

// A call that lasts longer than this does not count against the workers any more: then it
// holds up its own pod only. Calls that create and update pods may take some minutes where
// a backend buys machines, and how many run at a time is bounded for longer.
const (
	quickCallLimit = abandonAfter
	longCallLimit  = slowRequest
)

// occupy has an action no longer count against the workers when
// it takes too long. done has to be called when it has returned.
func (pc *Controller) occupy(ctx context.Context, r *podRecord) (done func()) {
	limit := quickCallLimit
	if queue.InLongLane(ctx) {
		limit = longCallLimit
	}
	returned := false
	timer := time.AfterFunc(limit, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !returned {
			pc.syncs.Release(r.key())
		}
	})
	return func() {
		timer.Stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		returned = true
	}
}

// callsProvider are the actions that do.
var callsProvider = map[verb]bool{doInspect: true, doCreate: true, doUpdate: true, doStop: true, doKill: true}
