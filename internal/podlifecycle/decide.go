package podlifecycle

import "time"

// desired is what the API wants of a pod.
type desired string

const (
	desiredGone desired = "gone" // the API has no such pod
	desiredRun  desired = "run"
	desiredStop desired = "stop" // its deletion was requested
	desiredDone desired = "done" // its phase is terminal: it stays as it is, stopped
)

// observed is whether the provider is known to hold a pod.
type observed string

const (
	unknown observed = "unknown" // ask first
	absent  observed = "absent"
	held    observed = "held"
)

// requested is what the provider was last asked to do about a pod's end.
type requested string

const (
	requestedNone requested = ""
	requestedStop requested = "stop"
	requestedKill requested = "kill"
)

// view is all that the next action about a pod depends on.
type view struct {
	progress
	now time.Time

	// What the API says.
	desired     desired
	deadline    time.Time // end of the grace period, once the pod was asked to stop
	unconfirmed bool      // only a list lacks the pod: the API server has not confirmed that it is gone

	// olderFirst is set while an older pod of the same name is not over.
	olderFirst bool

	// What the provider holds.
	stopped  bool          // by the provider's status
	changed  bool          // the API's pod differs from what the provider was given
	patience time.Duration // for how long it has to be missing to be lost; negative: for ever

	// suspicious is set while too many pods are missing at once for all of them to be lost.
	suspicious bool
}

// verb names an action.
type verb string

const (
	doNothing verb = "nothing"
	doWait    verb = "wait"    // look again after the action's delay
	doInspect verb = "inspect" // ask the provider for the pod
	doCreate  verb = "create"
	doUpdate  verb = "update"
	doStop    verb = "stop"    // DeletePod, gracefully
	doKill    verb = "kill"    // DeletePod, at once
	doRelease verb = "release" // what was held has stopped: hold nothing
	doRemove  verb = "remove"  // from the API
	doLose    verb = "lose"    // report that the provider has lost it
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

// decide returns the one next action for a pod. It is called again after each action,
// until the answer is doNothing or doWait.
func decide(v view) action {
	switch {
	case v.olderFirst && !v.ran && (v.observed == unknown || v.desired == desiredRun && v.observed == absent):
		return action{verb: doNothing} // this one is decided on again when the older one is over
	case v.observed == unknown:
		return action{verb: doInspect}
	}
	switch v.desired {
	case desiredGone:
		return cleanUp(v)
	case desiredRun:
		return run(v)
	case desiredStop:
		return stop(v)
	case desiredDone:
		if runsOn(v) {
			return end(v)
		}
	}
	return action{verb: doNothing}
}

// cleanUp is about a pod that the API does not have: the provider must not hold it.
func cleanUp(v view) action {
	switch {
	case v.observed == held && v.requested != requestedNone && v.stopped:
		return action{verb: doRelease}
	case v.observed != held && !mayLinger(v):
		return action{verb: doNothing}
	case v.unconfirmed && v.requested == requestedNone:
		return action{verb: doConfirm}
	}
	return end(v)
}

// mayLinger reports whether a pod that the provider was not found to hold should
// be deleted there all the same: it ran, or its creation was cancelled, and it may
// only have been overlooked.
func mayLinger(v view) bool {
	return v.observed == absent && (v.ran || v.begun || v.cancelled) && v.requested == requestedNone
}

// runsOn reports whether a pod that is over for the API should be ended in the provider:
// that holds it, or its creation was cancelled, and it may only have been overlooked.
func runsOn(v view) bool {
	return v.observed == held && !v.stopped || v.observed == absent && v.cancelled && v.requested == requestedNone
}

func run(v view) action {
	switch {
	case v.observed == held && v.changed:
		return action{verb: doUpdate}
	case v.observed == held:
		return action{verb: doNothing}
	case v.ran:
		return miss(v)
	case v.begun:
		return createAgain(v)
	}
	return action{verb: doCreate}
}

// createAgain is about a pod that was created before this process began, has not run as
// far as is known, and is not known to the provider: which may hold it all the same, and
// answer with nothing since it has just started, too. The pod is created once that has
// lasted as long as makes a pod that ran a lost one: where none is ever lost, never.
func createAgain(v view) action {
	a := miss(v)
	if a.verb == doLose {
		a.verb = doCreate
	}
	return a
}

// missesPod reports whether a pod that is to run, and did or may do so, is not known to
// the provider.
func missesPod(v view) bool {
	return v.desired == desiredRun && v.observed == absent && (v.ran || v.begun)
}

// miss is about a pod that ran and that the provider does not know any more. It is
// lost when it was missed for long enough, up to a last time when that was over.
func miss(v view) action {
	due := v.missedAt.Add(v.patience)
	next := v.inspectedAt.Add(missedInterval)
	switch late := v.patience >= 0 && v.missing >= lostAfter && !v.inspectedAt.Before(due); {
	case late && v.suspicious:
		a := until(v, v.inspectedAt.Add(guardedInterval))
		a.guarded = true
		return a
	case late:
		return action{verb: doLose}
	case v.patience < 0:
	case v.patience < lostAfter*missedInterval:
		next = v.inspectedAt.Add(v.patience/lostAfter + time.Millisecond)
	case due.After(v.inspectedAt) && due.Before(next):
		next = due
	}
	return until(v, next)
}

func stop(v view) action {
	switch {
	case v.removed && (v.observed != held || v.requested != requestedNone && v.stopped):
		return action{verb: doNothing} // finalizers hold it; its end is seen by watch
	case v.observed == absent && !mayLinger(v):
		return action{verb: doRemove}
	case v.requested != requestedNone && v.stopped:
		return action{verb: doRemove}
	}
	return end(v)
}

// end asks for the end of what is held: first gracefully, however late that is, and
// at once when the grace period has run out.
func end(v view) action {
	if v.requested == requestedNone {
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
	if v.requested != requestedKill || v.now.Sub(v.requestedAt) >= killAgainInterval {
		return action{verb: doKill}
	}
	return recheck(v)
}

func recheck(v view) action { return until(v, v.inspectedAt.Add(recheckInterval)) }

// until waits, and asks the provider then.
func until(v view, next time.Time) action {
	if wait := next.Sub(v.now); wait > 0 {
		return action{verb: doWait, after: wait}
	}
	return action{verb: doInspect}
}
