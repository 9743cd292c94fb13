package podgroup

import (
	"context"
	"errors"
	"fmt"
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
	// listMargin is how much longer a list may take to end.
	listMargin = 10 * time.Second
	// pausedMaxAge is how long ago a list may have begun that goes on after it was throttled.
	pausedMaxAge = 10 * time.Minute
	// createdMaxAge is how long a new unit is added to lists that lack it.
	createdMaxAge = time.Minute
	// missingFor is for how long the unit of a pod has to be missing, unless an event says that
	// it is gone, before the pod is created again or fails: a service may show nothing for a
	// while. missingRetry is when to look again.
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
	missing      map[types.UID]time.Time // since when pods whose unit is not there are to be created
	created      map[types.UID]createdUnit
	unsure       map[types.UID]time.Time // when a creation failed, which may have happened all the same
	late         map[types.UID]lateUnit  // the same of a Getter, for lateMaxAge
	doubles      map[string]bool         // the IDs of superfluous units of the last list
}

// listing is a list that is being read.
type listing struct {
	began    time.Time
	units    []Unit
	others   []string        // the IDs of other clusters' units
	seen     map[string]bool // the IDs of all
	next     string          // the page that follows; empty at the beginning
	position string          // of the first page
}

// createdUnit is a unit that was created, and may not be in a list yet.
type createdUnit struct {
	Unit
	at      time.Time
	stopped time.Time // when its deletion was accepted, if it was
	seen    bool      // by an event
}

// lateUnit is the pod of a creation that failed, and when.
type lateUnit struct {
	pod *corev1.Pod
	at  time.Time
}

// isOutdated reports whether a list that began then, and lacks the unit, is to be believed.
func (c *createdUnit) isOutdated(began time.Time) bool {
	return began.Sub(c.at) > createdMaxAge || !c.stopped.IsZero() && began.After(c.stopped)
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
// event says so: the last list may have lacked it for a moment.
func (u *units) find(ctx context.Context, uid types.UID, age time.Duration, had bool) (Unit, bool, error) {
	_, known := u.lookup(uid)
	u.mu.Lock()
	want := newness{age: age, notBefore: u.unsure[uid], listed: !known && had && !u.gone[uid]}
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
	maps.DeleteFunc(u.unsure, func(_ types.UID, at time.Time) bool { return began.After(at) })
	u.began, u.ended = began, time.Now()
	var stopped []Unit
	for uid, found := range before {
		if _, ok := u.cached[uid]; !ok && found.Phase == Stopping {
			stopped = append(stopped, found)
		}
	}
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

// list requests all units. Without the UID of this cluster it is unknown which belong to
// it.
func (u *units) list(ctx context.Context) (*listing, error) {
	if getter, ok := u.backend.(Getter); ok {
		l := u.newListing()
		all, err := u.get(ctx, getter)
		l.units = all
		return l, err
	}
	if _, err := u.owner.uid(ctx); err != nil {
		return nil, err
	}
	l, resumed := u.resume()
	for {
		last, err := u.readPage(ctx, l)
		switch {
		case isThrottled(err):
			u.pause(l)
			return nil, err
		case err != nil && resumed: // the service may have forgotten the page
			l, resumed = u.newListing(), false
			continue
		case err != nil:
			return nil, err
		case !last:
			resumed = false
			continue
		}
		if len(l.units) == 0 && len(l.others) == 0 {
			if err := u.confirmEmpty(ctx); err != nil {
				return nil, err
			}
		}
		return l, u.owner.accept(ctx, l.units, l.others)
	}
}

func (u *units) newListing() *listing {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.arrived = nil
	return &listing{began: time.Now(), seen: map[string]bool{}}
}

// pause keeps a list that was throttled after its first page. If it began again each time,
// an account with a quota of fewer calls than pages would never have one.
func (u *units) pause(l *listing) {
	if l.next == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.paused = l
}

// resume returns a list that was paused, or a new one.
func (u *units) resume() (l *listing, resumed bool) {
	u.mu.Lock()
	l, u.paused = u.paused, nil
	u.mu.Unlock()
	if l == nil || time.Since(l.began) > pausedMaxAge {
		return u.newListing(), false
	}
	return l, true
}

// readPage reads the next page of a list, and reports whether it was the last one.
func (u *units) readPage(ctx context.Context, l *listing) (last bool, err error) {
	lister := u.backend.(Lister) // New has seen to it
	do := u.calls.do
	if l.next != "" {
		do = u.calls.doNext
	}
	var page Page
	err = do(ctx, ActionList, func(ctx context.Context) (err error) {
		page, err = lister.List(ctx, u.identity.filter(), l.next)
		return err
	})
	if err != nil {
		return false, err
	}
	if l.next == "" {
		l.position = page.Position
	}
	for _, found := range page.Units {
		// Pages shift while units are created and deleted.
		if l.seen[found.ID] || !u.identify(&found) {
			continue
		}
		l.seen[found.ID] = true
		if u.owner.isForeign(&found) {
			l.others = append(l.others, found.ID)
			continue
		}
		l.units = append(l.units, found)
	}
	if page.Next != "" && page.Next == l.next {
		return false, errdefs.AsUnavailable(errors.New("the service's list does not end: a page names itself as the next"))
	}
	l.next = page.Next
	return page.Next == "", nil
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
	known := map[types.UID]bool{}
	for _, pod := range pods {
		known[pod.UID] = true
	}
	u.mu.Lock()
	maps.DeleteFunc(u.late, func(_ types.UID, late lateUnit) bool { return time.Since(late.at) > lateMaxAge })
	for uid, late := range u.late {
		if !known[uid] {
			pods = append(pods, late.pod)
		}
	}
	u.mu.Unlock()
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
	before, ok := u.cached[found.Owner.UID]
	if !ok {
		before = u.created[found.Owner.UID].Unit
	}
	u.arrived = append(u.arrived, found)
	ok = u.change(&found)
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
	case ok && known.ID == found.ID, !ok && u.created[uid].ID == found.ID:
		delete(u.cached, uid)
		u.gone[uid] = true
	default:
		return false
	}
	delete(u.missing, uid)
	if c, ok := u.created[uid]; ok && c.ID == found.ID && found.Phase != Gone {
		c.Unit, c.seen = *found, true // a list may lack it yet
		u.created[uid] = c
	} else {
		delete(u.created, uid)
	}
	return true
}

// setWatched notes whether events keep the cache current. It returns the position of the
// last list.
func (u *units) setWatched(watched bool) (position string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watched = watched
	if !watched {
		u.ended = time.Time{}
	}
	return u.position
}

// add adds a new unit to lists until one has it.
func (u *units) add(uid types.UID, created Unit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.created[uid] = createdUnit{Unit: created, at: time.Now()}
	delete(u.unsure, uid)
	delete(u.gone, uid)
	delete(u.missing, uid)
}

// isGone reports whether the unit of a pod, which no list has, has been missing for long enough.
func (u *units) isGone(uid types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone[uid] {
		return true
	}
	if u.missing[uid].IsZero() {
		u.missing[uid] = time.Now()
	}
	return time.Since(u.missing[uid]) >= missingFor
}

// addUnsure notes that a creation failed, and may have happened all the same: only a list
// that begins later shows it.
func (u *units) addUnsure(pod *corev1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unsure[pod.UID] = time.Now()
	if _, gets := u.backend.(Getter); gets {
		u.late[pod.UID] = lateUnit{pod, time.Now()}
	}
}

// stopping notes that the deletion of a pod's unit was accepted.
func (u *units) stopping(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c, ok := u.created[uid]; ok && !c.Over() {
		c.Phase, c.stopped = Stopping, time.Now()
		u.created[uid] = c
	}
	if found, ok := u.cached[uid]; ok && !found.Over() {
		found.Phase = Stopping
		u.cached[uid] = found
	}
}

// getOne returns the unit of a pod of a backend without a list: from the last answers, or
// by asking for it alone, also if the pod has ended.
func (u *units) getOne(ctx context.Context, getter Getter, namespace, name string, uid types.UID, notFound error) (Unit, error) {
	pod, err := u.pods.Pods(namespace).Get(name)
	u.mu.Lock()
	if err != nil || uid != "" && pod.UID != uid {
		pod = u.late[uid].pod
	}
	if pod == nil {
		u.mu.Unlock()
		return Unit{}, notFound
	}
	found, ok := u.cached[pod.UID]
	fresh := time.Since(u.ended) < u.cacheFor
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
