package podgroup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

const (
	// The back-off of renewals that fail.
	firstRenewalRetry = 5 * time.Second
	lastRenewalRetry  = 5 * time.Minute
	// rereadInterval is how often the objects in volumes are read again: those that nobody
	// reads for five minutes are no longer watched.
	rereadInterval = 2 * time.Minute
	// staleEventInterval is the least time between events that files are not up to date.
	staleEventInterval = time.Hour
)

// renewals updates the files of units when an object that the pod refers to has changed,
// and when a token has to be renewed: one unit at a time, with retries. Its queue is the
// only schedule.
type renewals struct {
	p           *Provider
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName]
	unsubscribe func()

	mu   sync.Mutex
	pods map[types.UID]*renewal
}

// renewal is the state of the files, and of the images, of a pod's unit.
type renewal struct {
	images      images
	resources   []corev1.ResourceRequirements // with which it was created; nil if unknown
	scheduled   bool                          // the queue has the pod's next renewal
	applied     map[string]volume.Files       // what the service has accepted last; nil if unknown
	unconfirmed bool                          // whether the last update may not have arrived
	warned      time.Time                     // when an event last reported that they are not up to date; zero if they are
}

// start starts the worker and subscribes to objects. The backend of a node whose files
// never are renewed has neither.
func (r *renewals) start(p *Provider) {
	r.p, r.pods = p, map[types.UID]*renewal{}
	r.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRenewalRetry, lastRenewalRetry))
	r.unsubscribe = func() {}
	if _, ok := p.backend.(Updater); !ok {
		r.queue.ShutDown() // nothing is added to it any more
		return
	}
	p.work.Go(func() { // ends with the queue
		for r.next(p.ctx) {
		}
	})
	if p.init.Objects != nil {
		r.unsubscribe = p.init.Objects.Subscribe(r.objectChanged)
	}
}

// stop ends what start started. The provider's context has ended.
func (r *renewals) stop() {
	r.unsubscribe()
	r.queue.ShutDown()
}

// update calls do with the state of a pod, which may be new.
func (r *renewals) update(uid types.UID, do func(*renewal)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[uid] == nil {
		r.pods[uid] = &renewal{}
	}
	do(r.pods[uid])
}

// created notes the images and files with which a unit was created, and when to renew these.
func (r *renewals) created(pod *corev1.Pod, files map[string]volume.Files, due time.Time) {
	r.update(pod.UID, func(state *renewal) {
		state.images, state.resources, state.scheduled, state.applied = images{given: imagesOf(pod)}, resourcesOf(pod), true, files
	})
	r.schedule(cache.MetaObjectToName(pod), due)
}

// objectChanged queues the pods that have an object in a volume.
func (r *renewals) objectChanged(kind, namespace, name string) {
	pods, err := r.p.init.Pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return // the lister of a cache returns no error
	}
	for _, pod := range pods {
		if volume.HasObject(pod, func(k, n string) bool { return k == kind && n == name }) {
			r.queue.Add(cache.MetaObjectToName(pod))
		}
	}
}

// adopt queues the pods whose units an earlier process created, so that their tokens are
// renewed. It drops the state of pods that have neither a unit in the list nor a pod in the
// cache.
func (r *renewals) adopt(list []Unit) {
	keep := map[types.UID]bool{}
	for i := range list {
		o := &list[i].Owner
		keep[o.UID] = true
		if list[i].Over() || list[i].Phase == Stopping {
			continue
		}
		scheduled := false
		r.update(o.UID, func(state *renewal) { scheduled = state.scheduled })
		if !scheduled {
			r.queue.Add(cache.ObjectName{Namespace: o.Namespace, Name: o.Name})
		}
	}
	pods, err := r.p.init.Pods.List(labels.Everything())
	if err != nil {
		return // the lister of a cache returns no error
	}
	for _, pod := range pods {
		keep[pod.UID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.pods {
		if !keep[uid] {
			delete(r.pods, uid)
			r.p.sources.Tokens.Forget(uid)
		}
	}
}

// next processes one pod of the queue. It returns false once the provider is closed.
func (r *renewals) next(ctx context.Context) bool {
	name, closed := r.queue.Get()
	if closed {
		return false
	}
	defer r.queue.Done(name)
	pod, err := r.p.init.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		r.queue.Forget(name)
		return true
	}
	var again time.Time
	if err == nil {
		ctx = log.WithLogger(ctx, log.G(ctx).WithFields(log.Fields{"namespace": pod.Namespace, "pod": pod.Name, "uid": string(pod.UID)}))
		again, err = r.renew(ctx, pod)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.retry(ctx, name, pod, err, again)
	default:
		r.queue.Forget(name)
		r.update(pod.UID, func(state *renewal) { state.warned = time.Time{} })
		r.schedule(name, again)
	}
	return true
}

// schedule queues a pod for a time, unless that is zero.
func (r *renewals) schedule(name cache.ObjectName, at time.Time) {
	if !at.IsZero() {
		r.queue.AddAfter(name, max(time.Until(at), time.Second))
	}
}

// retry queues a pod again after an error. A permanent error is retried only if a token is
// due, or once something changes.
func (r *renewals) retry(ctx context.Context, name cache.ObjectName, pod *corev1.Pod, err error, due time.Time) {
	// A unit that takes no update yet, and a refusal for too many calls, pass by themselves.
	if pod != nil && !errdefs.IsConflict(err) && !isThrottled(err) && r.isStale(pod.UID) {
		log.G(ctx).WithError(err).Warn("Cannot update the files of a pod")
		r.p.events.recordStaleFiles(pod, fmt.Sprintf("The volumes keep their previous contents: %s", err))
	}
	delay, named := errdefs.RetryAfter(err)
	switch {
	case errdefs.IsPermanent(err):
		r.queue.Forget(name)
		if !due.IsZero() {
			r.queue.AddAfter(name, lastRenewalRetry)
		}
	case named:
		r.queue.AddAfter(name, delay)
	default:
		r.queue.AddRateLimited(name)
		r.schedule(name, due) // the queue takes the earlier one
	}
}

// isStale notes that the files of a pod are not up to date, and reports whether to say so.
func (r *renewals) isStale(uid types.UID) (say bool) {
	r.update(uid, func(state *renewal) {
		if say = state.warned.IsZero() || time.Since(state.warned) >= staleEventInterval; say {
			state.warned = time.Now()
		}
	})
	return say
}

// renew updates the files of a pod's unit if their contents have changed, and returns when
// to check again. A volume whose contents cannot be read stays as it is.
func (r *renewals) renew(ctx context.Context, pod *corev1.Pod) (due time.Time, err error) {
	if pod.DeletionTimestamp != nil {
		return due, nil
	}
	found, ok := r.p.units.lookup(pod.UID)
	if !ok {
		if found, ok, err = r.p.units.find(ctx, pod.UID, r.p.opts.CacheFor, false, false); err == nil && !ok {
			r.update(pod.UID, func(state *renewal) { state.scheduled = false }) // a list that has it queues it
			return due, nil                                                     // it is not created yet, or gone
		}
	}
	if err != nil || found.Over() || found.Phase == Stopping {
		return due, err
	}
	r.update(pod.UID, func(state *renewal) { state.scheduled = true })
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return r.p.opts.Features.reads(&v) }) {
		return due, nil
	}
	if !r.p.opts.Features.renews(pod) {
		return due, nil
	}
	r.adoptTokens(pod, &found)
	files, due, unread := r.p.readFiles(ctx, pod)
	var state renewal
	r.update(pod.UID, func(known *renewal) { state = *known })
	applied := state.applied
	if applied == nil {
		applied = found.Files
	}
	for i := range pod.Spec.Volumes { // what cannot be read stays as it is
		v := &pod.Spec.Volumes[i]
		if _, read := files[v.Name]; read || !r.p.opts.Features.reads(v) {
			continue
		}
		if applied[v.Name] == nil {
			return due, unread
		}
		files[v.Name] = applied[v.Name]
	}
	if err := r.p.opts.Features.checkFiles(files); err != nil {
		return due, err
	}
	if !sameFiles(files, applied) || state.unconfirmed {
		if !found.Settled() {
			// The list may be old.
			if found, err = r.settled(ctx, pod, found); err != nil {
				return due, err
			}
		}
		if err := r.apply(ctx, pod, &found, files); err != nil {
			return due, err
		}
	}
	r.update(pod.UID, func(known *renewal) { known.applied, known.unconfirmed = files, false })
	return due, unread
}

// settled returns the unit of a pod from a new list, or an error of class Conflict if it
// takes no updates.
func (r *renewals) settled(ctx context.Context, pod *corev1.Pod, found Unit) (Unit, error) {
	found, err := r.p.find(ctx, pod.Namespace, pod.Name, pod.UID)
	if err == nil && !found.Settled() {
		err = errdefs.AsConflict(fmt.Errorf("unit %s takes no updates now", found.ID))
	}
	return found, err
}

// apply updates the files of a unit.
func (r *renewals) apply(ctx context.Context, pod *corev1.Pod, u *Unit, files map[string]volume.Files) error {
	updater := r.p.backend.(Updater) // start has seen to it
	if r.p.init.MayBegin != nil && !r.p.init.MayBegin() {
		return errdefs.AsConflict(errors.New("another process may have taken the node"))
	}
	err := r.p.calls.do(ctx, ActionUpdate, func(ctx context.Context) error {
		return updater.Update(ctx, u, Change{Pod: pod, Files: files, Token: fmt.Sprintf("%s-%s", pod.UID, digest(files))})
	})
	switch {
	case err == nil:
		log.G(ctx).Info("Updated the files of the pod")
	case errdefs.IsUnavailable(err):
		r.update(pod.UID, func(state *renewal) { state.unconfirmed = true })
	case errdefs.IsOnlyNotFound(err):
		return nil // it was deleted meanwhile
	}
	return err
}

// sameFiles reports whether two sets of files have the same contents: services do not show
// modes.
func sameFiles(a, b map[string]volume.Files) bool {
	return maps.EqualFunc(a, b, func(a, b volume.Files) bool {
		return maps.EqualFunc(a, b, func(a, b volume.File) bool { return string(a.Data) == string(b.Data) })
	})
}

// digest returns a text that differs for different contents.
func digest(files map[string]volume.Files) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, path := range slices.Sorted(maps.Keys(files[name])) {
			_, _ = fmt.Fprintf(h, "%q %q %q\n", name, path, files[name][path].Data) // a hash takes all
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// adoptTokens adds the tokens that the service shows for a unit to the cache of tokens, so
// that tokens requested by an earlier process are renewed when they are due, not at once.
func (r *renewals) adoptTokens(pod *corev1.Pod, found *Unit) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		for _, from := range v.Projected.Sources {
			if token := from.ServiceAccountToken; token != nil {
				if file, ok := found.Files[v.Name][token.Path]; ok {
					r.p.sources.Tokens.Adopt(pod.UID, token.Audience, token.ExpirationSeconds, string(file.Data))
				}
			}
		}
	}
}
