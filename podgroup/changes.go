package podgroup

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// createdUnit is a unit that was created, and may not be in a list yet.
type createdUnit struct {
	Unit
	at      time.Time
	stopped time.Time // when its deletion was accepted, if it was
	seen    bool      // by an event
}

// isOutdated reports whether a list that began then, and lacks the unit, is to be believed.
func (c *createdUnit) isOutdated(began time.Time) bool {
	return began.Sub(c.at) > createdMaxAge || !c.stopped.IsZero() && began.After(c.stopped)
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
		delete(u.unsure, uid)
		delete(u.missing, uid)
	case ok && known.ID == found.ID, !ok && u.created[uid].ID == found.ID:
		delete(u.cached, uid)
		u.gone[uid] = true
		u.missing[uid] = time.Now().Add(-missingFor)
	default:
		return false
	}
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
	delete(u.stopped, uid)
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

// doubt is about a creation that failed, and may have happened all the same. It is over when the unit
// is seen, or not: by a list that began later, and when the pod was not to run any more. Until then
// another try may show more, and some backends show no unit that they are not sure of.
type doubt struct {
	pod *corev1.Pod
	at  time.Time // the last time
	// open is when one failed last of which it is not known whether it has happened. As units that were
	// created are, such a one is looked for in lists that lack it for createdMaxAge.
	open time.Time
}

// isSettled reports whether a list that began then, and lacks the unit, is to be believed.
func (d *doubt) isSettled(began time.Time) bool {
	return began.After(d.at) && began.Sub(d.open) > createdMaxAge
}

// isWanted reports whether a pod is still to run.
func (u *units) isWanted(pod *corev1.Pod) bool {
	now, err := u.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && now.UID == pod.UID && now.DeletionTimestamp == nil && !isOver(now)
}

// doubtEarlier notes that an earlier process may have failed to create the pods that the first list of
// this one with all pods known, which began then, does not show: just before, and without an answer, if
// their status has no unit. u.mu is held.
func (u *units) doubtEarlier(began time.Time) {
	pods, _ := u.pods.List(labels.Everything()) // from a cache, without errors
	for _, pod := range pods {
		_, shown := u.cached[pod.UID]
		_, created := u.created[pod.UID]
		if _, unsure := u.unsure[pod.UID]; !shown && !created && !unsure && !isOver(pod) {
			d := doubt{pod: pod, at: began.Add(-time.Nanosecond)}
			if !u.hadUnit(pod) {
				d.open = began
			}
			u.unsure[pod.UID] = d
		}
	}
}

// hasStopped reports whether the unit of a pod, which no list has, was to stop.
func (u *units) hasStopped(uid types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.stopped[uid].IsZero()
}

// setGone notes that the unit of a pod is gone.
func (u *units) setGone(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.missing[uid] = time.Now().Add(-missingFor)
}

// addUnsure notes that a creation failed, and may have happened all the same; open is whether it was
// not refused.
func (u *units) addUnsure(pod *corev1.Pod, open bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	d := u.unsure[pod.UID]
	d.pod, d.at = pod, time.Now()
	if open {
		d.open = d.at
	}
	u.unsure[pod.UID] = d
	if _, gets := u.backend.(Getter); gets {
		u.late[pod.UID] = lateUnit{pod, time.Now()}
	}
}

// unsureFor returns for how long the unit of a pod may show up that no list has; not positive: it does not.
func (u *units) unsureFor(uid types.UID) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	d, ok := u.unsure[uid]
	if !ok {
		return 0
	}
	return time.Until(d.open.Add(createdMaxAge)) + time.Millisecond
}

// stopping notes that the deletion of a pod's unit was accepted.
func (u *units) stopping(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped[uid] = time.Now()
	if c, ok := u.created[uid]; ok && !c.Over() {
		c.Phase, c.stopped = Stopping, time.Now()
		u.created[uid] = c
	}
	if found, ok := u.cached[uid]; ok && !found.Over() {
		found.Phase = Stopping
		u.cached[uid] = found
	}
}
