package podgroup

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// throttledDelay is the least delay after a call that was refused because there were
	// too many.
	throttledDelay = 10 * time.Second
	// exhaustedDelay is the least delay before a retry of what only a person can cure: a
	// quota, the stock, the balance, a missing right.
	exhaustedDelay = time.Minute
)

// Codes gives errors of a service their class by the service's codes. Each list has
// patterns of path.Match, such as "Throttling*"; of several lists the first that matches
// counts, in the order of the fields.
type Codes struct {
	// Throttled: there were too many calls. All calls of the action stop for a while.
	Throttled []string
	// Exhausted: a quota, the stock or the balance does not suffice.
	Exhausted []string
	// Denied: the credentials do not, or no longer, suffice.
	Denied []string
	// Busy: what the call is about is in a state that does not allow it, or exists already.
	Busy []string
	// Missing: what the call is about does not exist. Of a creation it is something
	// else that the unit refers to, which is refused; of a list it says nothing of a unit.
	Missing []string
	// Away: the service failed.
	Away []string
	// Refused: the call would be refused however often it is made. It counts as such for
	// creations, updates and commands; a list or a deletion has to succeed some day.
	Refused []string
}

// Classify returns err with the class of a code, for a call of an action, of which the
// service answered with an HTTP status and, if wait is positive, asked to wait. Without a
// code the answer was not the service's, but came from something before it, and says
// nothing of a unit.
func (c Codes) Classify(action Action, code string, status int, wait time.Duration, err error) error {
	if err == nil {
		return nil
	}
	is := func(patterns []string) bool {
		return code != "" && slices.ContainsFunc(patterns, func(pattern string) bool {
			matched, err := path.Match(pattern, code)
			return err == nil && matched
		})
	}
	later := func(err error) error {
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(err), max(wait, exhaustedDelay))
	}
	switch {
	case status == http.StatusTooManyRequests, is(c.Throttled):
		return Throttled(err, wait)
	case code == "":
		return unavailable(err, wait)
	case is(c.Exhausted):
		return later(err)
	case is(c.Denied):
		return errdefs.AsRetryAfter(err, max(wait, exhaustedDelay))
	case is(c.Busy):
		return errdefs.AsConflict(err)
	case is(c.Missing):
		switch action {
		case ActionCreate:
			return errdefs.AsPermanent(err)
		case ActionList, ActionWatch, ActionReport:
			return later(err)
		}
		return errdefs.AsNotFound(err)
	case is(c.Away), status >= http.StatusInternalServerError:
		return unavailable(err, wait)
	case is(c.Refused):
		switch action {
		case ActionCreate, ActionUpdate:
			return errdefs.AsPermanent(err)
		case ActionLog, ActionExec:
			return errdefs.AsInvalidInput(err)
		}
	}
	if status >= http.StatusBadRequest {
		// An unknown code does not mean that the pod is the reason.
		return errdefs.AsRetryAfter(err, max(wait, exhaustedDelay))
	}
	return err
}

// unavailable returns err as one of a service that is away, for a time that it may have given.
func unavailable(err error, wait time.Duration) error {
	err = errdefs.AsUnavailable(openError{err})
	if wait > 0 {
		err = errdefs.AsRetryAfter(err, wait)
	}
	return err
}

// openError is one that leaves open whether what was asked for has happened, also where it says when to
// try again: a gateway may answer for a service that goes on.
type openError struct{ error }

func (e openError) Unwrap() error { return e.error }

// NotCreated marks err, the error of a creation, as one after which there is no unit of this creation,
// and will be none: nothing was sent that could make one, or the service has refused to. It says nothing
// of earlier creations. A pod whose creation has failed in any other way stays in the API for a minute
// once it is deleted, unless the error is permanent or says when to try again: its unit may show up. The
// class of err stays as it is.
func NotCreated(err error) error {
	if err == nil {
		return nil
	}
	return notCreated{err}
}

type notCreated struct{ error }

// Unwrap returns the error with its class.
func (e notCreated) Unwrap() error { return e.error }

// IsRefusal reports whether there is no unit of a creation that failed with err, and will be none: a service
// has refused it, for now or for good, or was not asked. Any other error leaves open whether it has happened,
// or will.
func IsRefusal(err error) bool {
	if _, ok := errors.AsType[notCreated](err); ok {
		return true
	}
	_, later := errdefs.RetryAfter(err)
	var open openError
	return (later || errdefs.IsPermanent(err)) && !errors.As(err, &open)
}

// NotSupportedf returns the error of what a service cannot do for a pod: a permanent one, which
// fails the pod.
func NotSupportedf(format string, args ...any) error {
	return errdefs.AsPermanent(fmt.Errorf(reasonNotSupported+": "+format, args...))
}

// Throttled marks err as the refusal of a call because there were too many: no call of the
// action is made for the time wait, at least ten seconds.
func Throttled(err error, wait time.Duration) error {
	return throttled{errdefs.AsRetryAfter(err, max(wait, throttledDelay))}
}

type throttled struct{ error }

// Unwrap returns the error with its delay.
func (t throttled) Unwrap() error { return t.error }

// isThrottled reports whether err means that there were too many calls.
func isThrottled(err error) bool {
	_, ok := errors.AsType[throttled](err)
	return ok
}
