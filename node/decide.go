package node

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// wish is what the API wants of a pod name on this node.
type wish string

const (
	wishGone wish = "gone" // there is no such pod
	wishRun  wish = "run"
	wishStop wish = "stop" // its deletion was asked for
	wishDone wish = "done" // its phase is terminal: it stays as it is, stopped
)

// knowledge is what the controller knows of what the provider holds.
type knowledge string

const (
	unknown knowledge = "unknown" // ask first
	absent  knowledge = "absent"
	held    knowledge = "held"
)

// request is what the provider was last asked to do about a pod's end.
type request string

const (
	requestNone request = ""
	requestStop request = "stop"
	requestKill request = "kill"
)

// view is all that the next action about one pod name depends on.
type view struct {
	now time.Time

	// What the API says.
	wish     wish
	uid      types.UID // empty when gone
	deadline time.Time // end of the grace period, once it was asked to stop
	removed  bool      // the API was told to remove this UID
	doubtful bool      // only a list lacks it: the API has not said that it is gone

	// What the provider holds under the name.
	provider  knowledge
	heldUID   types.UID
	stopped   bool // reported by the provider
	ran       bool // it was taken on before: it must not be created again
	cancelled bool // its creation was, and may have succeeded all the same
	changed   bool // the API's pod differs from what the provider was given
	asked     request
	askedAt   time.Time
	inspected time.Time     // when the provider was last asked what it holds
	missing   int           // how often in a row a pod that ran was not found
	missedAt  time.Time     // the first time of those
	patience  time.Duration // for how long it has to be missing; negative: for ever

	// suspicious says that too many pods are missing at once for all of them to be lost.
	suspicious bool
}

// verb names an action.
type verb string

const (
	doNothing verb = "nothing"
	doWait    verb = "wait"    // look again after the action's delay
	doInspect verb = "inspect" // ask the provider what it holds
	doCreate  verb = "create"
	doUpdate  verb = "update"
	doStop    verb = "stop"    // DeletePod, gracefully
	doKill    verb = "kill"    // DeletePod, at once
	doRelease verb = "release" // what was held has stopped: hold nothing
	doRemove  verb = "remove"  // from the API
	doLose    verb = "lose"    // say that the provider has lost it
	doConfirm verb = "confirm" // ask the API server whether it is gone
)

type action struct {
	verb    verb
	after   time.Duration // for doWait
	guarded bool          // it would be lost, were not so many missing
}

const (
	// recheckInterval is how often the provider is asked for a pod whose end,
	// or whose loss, is waited for.
	recheckInterval = 5 * time.Second
	// killAgainInterval is how often a kill that had no effect is repeated.
	killAgainInterval = time.Minute
	// lostAfter is how often in a row a pod that ran has to be missed before it
	// counts as lost, however long that takes.
	lostAfter = 3
	// missedInterval is how often the provider is asked for a pod that it has missed,
	// at least.
	missedInterval = 15 * time.Second
	// guardedInterval is how often it is while it misses too many.
	guardedInterval = time.Minute
)

// decide names the one next action for a pod name. It is called again after
// each action, until it says doNothing or doWait.
func decide(v view) action {
	switch {
	case v.provider == unknown:
		return action{verb: doInspect}
	case v.wish == wishGone || v.heldUID != v.uid:
		// Gone from the API, or another pod took the name: this one goes first.
		return bury(v)
	}
	switch v.wish {
	case wishRun:
		return run(v)
	case wishStop:
		return stop(v)
	case wishDone:
		if v.provider == held && !v.stopped || mayHaveBegun(v) {
			return end(v)
		}
	}
	return action{verb: doNothing}
}

// bury sees to it that nothing is held of a pod that the API has no more.
func bury(v view) action {
	switch {
	case v.provider == held && v.asked != requestNone && v.stopped:
		return action{verb: doRelease}
	case (v.provider == held || mayLinger(v)) && v.doubtful && v.asked == requestNone:
		return action{verb: doConfirm}
	case v.provider == held || mayLinger(v):
		return end(v)
	}
	if rest := clockSkew - v.now.Sub(v.askedAt); v.wish == wishGone && v.asked != requestNone && rest > 0 {
		// The provider may go on showing it, without its UID. A successor of its
		// name is not to be mistaken for it; later their ages tell.
		return action{verb: doWait, after: rest}
	}
	return action{verb: doNothing}
}

// mayLinger tells whether a pod that the provider was not found to hold should
// be deleted there all the same: it ran, or its creation was cancelled, and it may
// only have been overlooked.
func mayLinger(v view) bool {
	return v.provider == absent && (v.ran || v.cancelled) && v.asked == requestNone
}

// mayHaveBegun reports whether a pod whose creation was cancelled should be deleted in
// the provider although that was not found to hold it.
func mayHaveBegun(v view) bool {
	return v.provider == absent && v.cancelled && v.asked == requestNone
}

func run(v view) action {
	switch {
	case v.provider == held && v.changed:
		return action{verb: doUpdate}
	case v.provider == held:
		return action{verb: doNothing}
	case !v.ran:
		return action{verb: doCreate}
	}
	return miss(v)
}

// missesPod reports whether a pod that ran, and is to run, is not known to the provider.
func missesPod(v view) bool {
	return v.wish == wishRun && v.heldUID == v.uid && v.provider == absent && v.ran
}

// miss is about a pod that ran and that the provider does not know any more. It is
// lost when it was missed for long enough, up to a last time when that was over.
func miss(v view) action {
	due := v.missedAt.Add(v.patience)
	next := v.inspected.Add(missedInterval)
	switch overdue := v.patience >= 0 && v.missing >= lostAfter && !v.inspected.Before(due); {
	case overdue && v.suspicious:
		a := until(v, v.inspected.Add(guardedInterval))
		a.guarded = true
		return a
	case overdue:
		return action{verb: doLose}
	case v.patience < 0:
	case v.patience < lostAfter*missedInterval:
		next = v.inspected.Add(v.patience/lostAfter + time.Millisecond)
	case due.After(v.inspected) && due.Before(next):
		next = due
	}
	return until(v, next)
}

func stop(v view) action {
	switch {
	case v.removed && (v.provider != held || v.asked != requestNone && v.stopped):
		return action{verb: doNothing} // finalizers hold it; its end is seen by watch
	case v.provider == absent && !mayLinger(v):
		return action{verb: doRemove}
	case v.asked != requestNone && v.stopped:
		return action{verb: doRemove}
	}
	return end(v)
}

// end asks for the end of what is held: first gracefully, however late that is, and
// at once when the grace period has run out.
func end(v view) action {
	if v.asked == requestNone {
		return action{verb: doStop}
	}
	if !v.now.Before(v.deadline) {
		return kill(v)
	}
	a := recheck(v)
	a.after = min(a.after, v.deadline.Sub(v.now))
	return a
}

// kill asks for the end at once, and sees that it comes.
func kill(v view) action {
	if v.asked != requestKill || v.now.Sub(v.askedAt) >= killAgainInterval {
		return action{verb: doKill}
	}
	return recheck(v)
}

func recheck(v view) action { return until(v, v.inspected.Add(recheckInterval)) }

// until waits, and asks the provider then.
func until(v view, next time.Time) action {
	if wait := next.Sub(v.now); wait > 0 {
		return action{verb: doWait, after: wait}
	}
	return action{verb: doInspect}
}
