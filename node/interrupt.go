package node

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// errNotWanted is the cause of the end of a provider call's context whose pod is not
// wanted any more.
var errNotWanted = errors.New("the pod is not wanted any more: it was deleted or replaced, has ended, or its deadline is over")

// abandonAfter is how long a call whose context was cancelled counts against the
// workers. One that goes on holds up its own pod only, from then on.
const abandonAfter = 30 * time.Second

// interruptible is a call that takes a pod on, or a change of it, and that ends early
// when the pod is not wanted any more.
type interruptible struct {
	uid     types.UID
	cancel  context.CancelCauseFunc
	expiry  *time.Timer // until the pod's deadline; nil if it has none
	abandon *time.Timer // once it was cancelled
}

// begin returns the context of a call that ends early once the pod is not wanted any
// more, which it may not be already. done has to be called when the call has returned.
func (pc *PodController) begin(ctx context.Context, key string, r *podRecord, pod *corev1.Pod) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &interruptible{uid: pod.UID, cancel: cancel}
	r.mu.Lock()
	r.call = c
	if end, limited := r.activeUntil(pod, time.Now()); limited {
		c.expiry = time.AfterFunc(time.Until(end), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			pc.cancelCall(key, r, c)
		})
	}
	r.mu.Unlock()
	// What has changed before is in the cache, what changes from now on finds the call.
	pc.interrupt(ctx, key)
	return ctx, func() {
		r.mu.Lock()
		r.call = nil
		for _, timer := range []*time.Timer{c.expiry, c.abandon} {
			if timer != nil {
				timer.Stop()
			}
		}
		r.mu.Unlock()
		cancel(nil)
	}
}

// interrupt cancels the call that is under way for a pod of that name which is not
// wanted any more.
func (pc *PodController) interrupt(ctx context.Context, key string) {
	r := pc.records.get(key)
	if r == nil || !r.calls() {
		return
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return // made by keyOf: cannot happen
	}
	pod, err := pc.podInAPI(ctx, namespace, name)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.call
	if c == nil || pod != nil && pod.UID == c.uid && pod.DeletionTimestamp == nil && !isTerminal(pod.Status.Phase) {
		return
	}
	pc.cancelCall(key, r, c)
}

// cancelCall cancels a call, unless it has returned or was cancelled before. r.mu is
// held.
func (pc *PodController) cancelCall(key string, r *podRecord, c *interruptible) {
	if r.call != c || c.abandon != nil {
		return
	}
	c.cancel(errNotWanted)
	c.abandon = time.AfterFunc(abandonAfter, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.call == c {
			pc.syncs.Release(key)
		}
	})
}

// calls reports whether a call that can be interrupted is under way.
func (r *podRecord) calls() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.call != nil
}

// interrupted reports whether a call's context has ended because its pod is not wanted
// any more.
func interrupted(ctx context.Context) bool { return context.Cause(ctx) == errNotWanted }

// takesLong reports whether an action belongs in the lane for calls that may take
// long, or hang: what it takes to run a pod. The end of pods does not wait behind it.
func takesLong(do verb, v view) bool {
	return v.wish == wishRun && v.heldUID == v.uid && (do == doInspect || do == doCreate || do == doUpdate)
}

// callsProvider are the actions that do.
var callsProvider = map[verb]bool{doInspect: true, doCreate: true, doUpdate: true, doStop: true, doKill: true}
