package podgroup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// listTimeout is the timeout of a list with all of its pages.
	listTimeout = 2 * time.Minute
	// listMargin is how much longer a list may take to end.
	listMargin = 10 * time.Second
	// pausedMaxAge is how long ago a list may have begun that goes on after it was throttled.
	pausedMaxAge = 10 * time.Minute
	// createdMaxAge is how long a new unit is added to lists that lack it.
	createdMaxAge = time.Minute
	// missingFor is for how long the unit of a pod has to be missing, unless an event says that
	// it is gone, before the pod is created again, fails, or leaves the API: a service may show
	// nothing for a while. missingRetry is when to look again.
	missingFor, missingRetry = time.Minute, 10 * time.Second
	// watchedMaxAge is how long events alone keep the cache current: a list finds what they
	// do not show, such as a second unit of a pod.
	watchedMaxAge = 5 * time.Minute
	// lateMaxAge is for how long a service without a list is asked for the unit of a pod that
	// is gone and whose creation failed: it may have begun, and take effect late.
	lateMaxAge = 15 * time.Minute
	// unknownMaxAge is how old a list may be that says that a pod has no unit, where no
	// call was about one.
	unknownMaxAge = time.Minute
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
	// hadUnit reports whether a pod has had a unit, by its status.
	hadUnit func(*corev1.Pod) bool
	// synced reports whether all pods of the node are known.
	synced func() bool
	// confirmEmpty is called when a list has no units; its error refuses that.
	confirmEmpty func(context.Context) error
	// superfluous is called with units of pods that have an older one, when two lists in a
	// row had both.
	superfluous func(context.Context, []Unit)
	// stored is called when a list is in the cache, with the units that it lacks and that
	// were stopping.
	stored func(stopped []Unit)
	// begin begins what Close ends and waits for.
	begin func(context.Context) (context.Context, func(), error)

	flight singleflight.Group

	mu           sync.Mutex
	paused       *listing // is to go on
	cached       map[types.UID]Unit
	began, ended time.Time               // of the list in the cache
	position     string                  // of that list
	watched      bool                    // cached is kept current by events
	arrived      []Unit                  // by events since the last list began, which may lack them
	gone         map[types.UID]bool      // by events since that list
	missing      map[types.UID]time.Time // since when pods whose unit is not there are to be created, or to go
	created      map[types.UID]createdUnit
	stopped      map[types.UID]time.Time // when the unit of a pod was to stop, and when it had
	doubted      bool                    // doubtEarlier was called
	unsure       map[types.UID]doubt     // pods whose creation failed, and may have happened all the same
	late         map[types.UID]lateUnit  // the same of a Getter, for lateMaxAge
	doubles      map[string]bool         // the IDs of superfluous units of the last list
}

// all returns the units that are ours by the UID of their pod, from a list that is new
// enough.
func (u *units) all(ctx context.Context) (map[types.UID]Unit, error) {
	if err := u.ensure(ctx, newness{age: u.cacheFor}); err != nil {
		return nil, err
	}
	all := u.snapshot()
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(all, func(uid types.UID, found Unit) bool { return u.late[uid].pod == nil && !u.owner.isOurs(&found) })
	return all, nil
}

// find returns the unit of a pod, which may belong to another cluster because it does not
// say: a caller that knows the UID knows the pod. A pod that no call was about cannot have
// got a unit since the last list, so that this may be older; without a UID there is none,
// and the list is not. One that has had a unit (had) is missing only if a new list or an
// event says so: the last list may have lacked it for a moment. So is one whose creation failed, or
// of which that is not known yet (see doubtEarlier), and that is not to run any more (deleted).
func (u *units) find(ctx context.Context, uid types.UID, age time.Duration, had, deleted bool) (Unit, bool, error) {
	_, known := u.lookup(uid)
	u.mu.Lock()
	want := newness{age: age, listed: !known && had && !u.gone[uid]}
	if d, unsure := u.unsure[uid]; unsure {
		want.notBefore = d.at
		if !known && !u.isWanted(d.pod) {
			want.notBefore, want.listed = time.Now(), true
		}
	} else if deleted && !known && !u.doubted { // see doubtEarlier
		want.notBefore, want.listed = time.Now(), true
	}
	u.mu.Unlock()
	if !known && !want.listed && uid != "" {
		want.age = max(want.age, unknownMaxAge)
	}
	if err := u.ensure(ctx, want); err != nil {
		return Unit{}, false, err
	}
	found, ok := u.lookup(uid)
	return found, ok, nil
}

// lookup returns the unit of a pod from the cache, regardless of its age.
func (u *units) lookup(uid types.UID) (Unit, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if found, ok := u.cached[uid]; ok {
		return found, true
	}
	created, ok := u.created[uid]
	return created.Unit, ok
}

// snapshot returns a copy of the cache with the new units.
func (u *units) snapshot() map[types.UID]Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[types.UID]Unit, len(u.cached)+len(u.created))
	for uid, created := range u.created {
		all[uid] = created.Unit
	}
	maps.Copy(all, u.cached)
	return all
}

// newness is how new the cache has to be.
type newness struct {
	age       time.Duration // the list is younger
	notBefore time.Time     // the list began later
	listed    bool          // events do not keep an older list current
}

// isMet reports whether the cache is as new as wanted. The caller holds u.mu.
func (u *units) isMet(want newness) bool {
	if u.cached == nil || !u.began.After(want.notBefore) {
		return false
	}
	age := time.Since(u.ended)
	return age < want.age || u.watched && !want.listed && age < watchedMaxAge && !u.lacksCreated()
}

// lacksCreated reports whether no event has come about a unit that was created long ago.
// The caller holds u.mu.
func (u *units) lacksCreated() bool {
	for _, c := range u.created {
		if !c.seen && time.Since(c.at) > createdMaxAge {
			return true
		}
	}
	return false
}

// ensure sees to it that the cache is as new as wanted.
func (u *units) ensure(ctx context.Context, want newness) error {
	for range 2 { // the list that is being made may have begun too early
		u.mu.Lock()
		met := u.isMet(want)
		u.mu.Unlock()
		if met {
			return nil
		}
		if err := u.calls.budget.silent(ActionList); err != nil {
			return err
		}
		// Concurrent callers share one list, which does not end with the context of the
		// first one.
		results := u.flight.DoChan("", func() (any, error) { return nil, u.refresh(context.WithoutCancel(ctx)) })
		select {
		case <-ctx.Done():
			return ctx.Err()
		case result := <-results:
			if result.Err != nil {
				return result.Err
			}
		}
		want.age = time.Hour // from now on it is new enough
	}
	return nil
}

// refresh makes a list. If the service does not answer, and the backend ignores its
// deadline, the next caller makes another one.
func (u *units) refresh(ctx context.Context) error {
	ctx, end, err := u.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	defer time.AfterFunc(listTimeout+listMargin, func() { u.flight.Forget("") }).Stop()
	list, err := u.list(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errdefs.AsUnavailable(fmt.Errorf("the list came too late: %w", ctx.Err())) // a newer one may have been made
	}
	u.store(ctx, list)
	return nil
}

// store caches a list.
func (u *units) store(ctx context.Context, l *listing) {
	list, began := l.units, l.began
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
	before := u.cached
	u.cached, u.position, u.gone = byUID, l.position, map[types.UID]bool{}
	for i := range u.arrived {
		u.change(&u.arrived[i])
	}
	maps.DeleteFunc(u.created, func(uid types.UID, c createdUnit) bool {
		_, ok := byUID[uid]
		return ok || c.isOutdated(began)
	})
	maps.DeleteFunc(u.missing, func(uid types.UID, since time.Time) bool {
		_, ok := u.cached[uid]
		return ok || time.Since(since) > time.Hour
	})
	maps.DeleteFunc(u.unsure, func(uid types.UID, d doubt) bool {
		_, ok := u.cached[uid]
		return ok || l.unwanted[uid] && d.isSettled(began)
	})
	if !u.doubted && u.synced() {
		u.doubtEarlier(began)
		u.doubted = true
	}
	u.began, u.ended = began, time.Now()
	var stopped []Unit
	for uid, found := range before {
		if _, ok := u.cached[uid]; !ok && found.Phase == Stopping {
			stopped = append(stopped, found)
			u.stopped[uid] = u.ended
		}
	}
	maps.DeleteFunc(u.stopped, func(_ types.UID, at time.Time) bool { return time.Since(at) > time.Hour })
	u.mu.Unlock()
	u.stored(stopped)
	if later = slices.DeleteFunc(later, func(found Unit) bool { return !u.owner.isOurs(&found) }); len(later) > 0 {
		u.superfluous(ctx, later)
	}
}

// older reports whether a was created before b.
func older(a, b *Unit) bool {
	if !a.Created.Equal(b.Created) {
		return a.Created.Before(b.Created)
	}
	return a.ID < b.ID
}
