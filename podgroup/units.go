package podgroup

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// listTimeout is the timeout of a list with all of its pages.
	listTimeout = 2 * time.Minute
	// createdMaxAge is how long a new unit is added to lists that lack it.
	createdMaxAge = time.Minute
	// watchedMaxAge is how long events alone keep the cache current: a list finds what they
	// do not show, such as a second unit of a pod.
	watchedMaxAge = 5 * time.Minute
)

// units caches the units of the node by the UID of their pod. It is safe for concurrent
// use.
type units struct {
	backend  Backend
	calls    *calls
	identity Identity
	owner    *owner
	pods     corev1listers.PodLister
	cacheFor time.Duration
	// listed is called with each new list of units that are ours.
	listed func([]Unit)
	// confirmEmpty is called when a list has no units; its error refuses that.
	confirmEmpty func(context.Context) error
	// superfluous is called with units of pods that have an older one, when two lists in a
	// row had both.
	superfluous func(context.Context, []Unit)

	flight singleflight.Group

	mu       sync.Mutex
	changes  int // number of creations and deletions, which a list from before may lack
	cached   map[types.UID]Unit
	at       time.Time // when cached was current; zero if something has changed since
	position string    // of the last list
	watched  bool      // cached is kept current by events
	arrived  []Unit    // by events since the last list began, which may lack them
	created  map[types.UID]createdUnit
	doubles  map[string]bool // the IDs of superfluous units of the last list
}

// createdUnit is a unit that was created, and may not be in a list yet.
type createdUnit struct {
	Unit
	at time.Time
}

// all returns the units that are ours by the UID of their pod, from a list that is new
// enough.
func (u *units) all(ctx context.Context) (map[types.UID]Unit, error) {
	all, err := u.youngerThan(ctx, u.cacheFor)
	maps.DeleteFunc(all, func(_ types.UID, found Unit) bool { return !u.owner.isOurs(&found) })
	return all, err
}

// youngerThan returns the units from a list that is younger than age, including those
// that may belong to another cluster because they do not say: a caller that knows the UID
// knows the pod.
func (u *units) youngerThan(ctx context.Context, age time.Duration) (map[types.UID]Unit, error) {
	u.mu.Lock()
	if u.cached != nil && (time.Since(u.at) < age || u.watched && time.Since(u.at) < watchedMaxAge) {
		defer u.mu.Unlock()
		return u.withCreated(), nil
	}
	u.mu.Unlock()
	if err := u.calls.budget.silent(ActionList); err != nil {
		return nil, err
	}
	// Concurrent callers share one list, which does not end with the context of the first
	// one.
	results := u.flight.DoChan("", func() (any, error) { return nil, u.refresh(context.WithoutCancel(ctx)) })
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-results:
		if result.Err != nil {
			return nil, result.Err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.withCreated(), nil
}

// ofPod returns the unit of a pod from the last list, regardless of its age: good enough
// for what does not change of a unit. If that lacks the pod, a new list is made.
func (u *units) ofPod(ctx context.Context, uid types.UID) (Unit, error) {
	u.mu.Lock()
	found, ok := u.cached[uid]
	if created, isNew := u.created[uid]; !ok && isNew {
		found, ok = created.Unit, true
	}
	u.mu.Unlock()
	if ok {
		return found, nil
	}
	all, err := u.youngerThan(ctx, u.cacheFor)
	if err != nil {
		return Unit{}, err
	}
	if found, ok = all[uid]; !ok {
		return Unit{}, errdefs.NotFoundf("there is no unit of pod %s", uid)
	}
	return found, nil
}

// withCreated returns a copy of the cache with the new units. The caller holds u.mu.
func (u *units) withCreated() map[types.UID]Unit {
	all := make(map[types.UID]Unit, len(u.cached)+len(u.created))
	for uid, created := range u.created {
		all[uid] = created.Unit
	}
	maps.Copy(all, u.cached)
	return all
}

// refresh lists until nothing was created or deleted meanwhile, at most twice: if there
// are changes all the time, a list has to be used at some time.
func (u *units) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for try := 1; ; try++ {
		u.mu.Lock()
		era := u.changes
		u.arrived = nil
		u.mu.Unlock()
		list, position, err := u.list(ctx)
		if err != nil {
			return err
		}
		if u.store(ctx, list, position, era) || try == 2 {
			return nil
		}
	}
}

// store caches a list, and reports whether nothing was created or deleted since it began.
func (u *units) store(ctx context.Context, list []Unit, position string, era int) bool {
	u.listed(slices.DeleteFunc(slices.Clone(list), func(found Unit) bool { return !u.owner.isOurs(&found) }))
	byUID := map[types.UID]Unit{}
	var later []Unit
	for _, found := range list {
		uid := found.Owner.UID
		other, ok := byUID[uid]
		if ok && older(&other, &found) {
			other, found = found, other
		}
		byUID[uid] = found
		if ok {
			later = append(later, other)
		}
	}
	u.mu.Lock()
	known := u.doubles
	u.doubles = map[string]bool{}
	for i := range later {
		u.doubles[later[i].ID] = true
	}
	later = slices.DeleteFunc(later, func(found Unit) bool {
		return !known[found.ID] || found.Phase == Stopping || found.Over()
	})
	u.cached, u.position = byUID, position
	for i := range u.arrived {
		u.change(&u.arrived[i])
	}
	maps.DeleteFunc(u.created, func(uid types.UID, c createdUnit) bool {
		_, ok := byUID[uid]
		return ok || time.Since(c.at) > createdMaxAge
	})
	current := u.changes == era
	u.at = time.Now()
	if !current && !u.watched {
		u.at = time.Time{} // good for the callers that wait for it, but for no later one
	}
	u.mu.Unlock()
	if later = slices.DeleteFunc(later, func(found Unit) bool { return !u.owner.isOurs(&found) }); len(later) > 0 {
		u.superfluous(ctx, later)
	}
	return current
}

// older reports whether a was created before b.
func older(a, b *Unit) bool {
	if !a.Created.Equal(b.Created) {
		return a.Created.Before(b.Created)
	}
	return a.ID < b.ID
}

// list requests all units. Without the UID of this cluster it is unknown which belong to
// it.
func (u *units) list(ctx context.Context) (all []Unit, position string, err error) {
	if getter, ok := u.backend.(Getter); ok {
		all, err := u.get(ctx, getter)
		return all, "", err
	}
	if _, err := u.owner.uid(ctx); err != nil {
		return nil, "", err
	}
	lister := u.backend.(Lister) // New has seen to it
	var others []string
	seen := map[string]bool{}
	for token := ""; ; {
		var page Page
		err := u.calls.do(ctx, ActionList, func(ctx context.Context) (err error) {
			page, err = lister.List(ctx, u.identity.filter(), token)
			return err
		})
		if err != nil {
			return nil, "", err
		}
		if token == "" {
			position = page.Position
		}
		for _, found := range page.Units {
			// Pages shift while units are created and deleted.
			if seen[found.ID] || !u.identify(&found) {
				continue
			}
			seen[found.ID] = true
			if u.owner.isForeign(&found) {
				others = append(others, found.ID)
				continue
			}
			all = append(all, found)
		}
		switch page.Next {
		case "":
			if len(all) == 0 && len(others) == 0 {
				if err := u.confirmEmpty(ctx); err != nil {
					return nil, "", err
				}
			}
			return all, position, u.owner.accept(ctx, all, others)
		case token:
			return nil, "", errdefs.AsUnavailable(errors.New("the service's list does not end: a page names itself as the next"))
		default:
			token = page.Next
		}
	}
}

// get requests the units of the pods of the node.
func (u *units) get(ctx context.Context, getter Getter) (all []Unit, err error) {
	pods, err := u.pods.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
	if len(pods) == 0 {
		return nil, nil
	}
	err = u.calls.do(ctx, ActionList, func(ctx context.Context) (err error) {
		all, err = getter.Get(ctx, pods)
		return err
	})
	return all, err
}

// identify sets the owner of a unit that does not say it but in tags, and reports whether
// the unit has the names of this cluster and node. It does not rely on the service's
// filter.
func (u *units) identify(found *Unit) bool {
	if found.Owner != (Owner{}) {
		return true
	}
	var ok bool
	found.Owner, ok = u.identity.ownerOf(found.Tags)
	return ok
}

// apply changes the cache by an event, and returns what to notify of: nothing, if the unit
// is not ours. Of one that is gone it is the last state, if its deletion was accepted before;
// otherwise the pod is lost, which the controller finds out with more care.
func (u *units) apply(found Unit) (Unit, bool) {
	if !u.identify(&found) || u.owner.isForeign(&found) {
		return Unit{}, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.cached[found.Owner.UID]
	u.arrived = append(u.arrived, found)
	ok := u.change(&found)
	if found.Phase != Gone {
		return found, ok
	}
	ok = ok && (before.Phase == Stopping || before.Over())
	before.Phase = Gone
	return before, ok
}

// change sets a unit in the cache, and reports whether it is not a second one of its pod,
// which the next list finds. The caller holds u.mu.
func (u *units) change(found *Unit) bool {
	uid := found.Owner.UID
	known, ok := u.cached[uid]
	switch {
	case ok && known.ID != found.ID && older(&known, found):
		return false
	case found.Phase != Gone:
		u.cached[uid] = *found
	case ok && known.ID == found.ID:
		delete(u.cached, uid)
	default:
		return false
	}
	delete(u.created, uid)
	return true
}

// setWatched notes whether events keep the cache current. It returns the position of the
// last list.
func (u *units) setWatched(watched bool) (position string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watched = watched
	if !watched {
		u.at = time.Time{}
	}
	return u.position
}

// invalidate makes the next caller list again, unless events show what has changed.
func (u *units) invalidate() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changes++
	if !u.watched {
		u.at = time.Time{}
	}
}

// add adds a new unit to lists until one has it.
func (u *units) add(uid types.UID, created Unit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.created[uid] = createdUnit{created, time.Now()}
}

// remove drops a unit that was added.
func (u *units) remove(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.created, uid)
}

// getOne returns the unit of a pod of a backend without a list: from the last answers, or
// by asking for it alone, also if the pod has ended.
func (u *units) getOne(ctx context.Context, getter Getter, namespace, name string, uid types.UID, notFound error) (Unit, error) {
	pod, err := u.pods.Pods(namespace).Get(name)
	if err != nil || uid != "" && pod.UID != uid {
		return Unit{}, notFound
	}
	u.mu.Lock()
	found, ok := u.cached[pod.UID]
	fresh := time.Since(u.at) < u.cacheFor
	u.mu.Unlock()
	if ok && fresh {
		return found, nil
	}
	return u.getPod(ctx, getter, pod, notFound)
}

// getPod asks a backend without a list for the unit of a pod, which the cache of pods need
// not have any more.
func (u *units) getPod(ctx context.Context, getter Getter, pod *corev1.Pod, notFound error) (Unit, error) {
	var all []Unit
	err := u.calls.do(ctx, ActionList, func(ctx context.Context) (err error) {
		all, err = getter.Get(ctx, []*corev1.Pod{pod})
		return err
	})
	if err != nil {
		return Unit{}, err
	}
	for _, found := range all {
		if found.Owner.UID == pod.UID {
			return found, nil
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if created, ok := u.created[pod.UID]; ok && time.Since(created.at) < createdMaxAge {
		return created.Unit, nil
	}
	return Unit{}, notFound
}
