package errdefs

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Class is a kind of failure. Its text is the value of metric labels.
type Class string

// The classes, the gravest first.
const (
	// PermanentClass: no retry of the same call will cure it. A pod whose creation
	// fails so is Failed.
	PermanentClass Class = "permanent"
	// InvalidInputClass: the request was at fault.
	InvalidInputClass Class = "invalid_input"
	// NotFoundClass: the thing is not there.
	NotFoundClass Class = "not_found"
	// ConflictClass: the request clashes with the present state of the thing.
	ConflictClass Class = "conflict"
	// RetryAfterClass: try again, but not before the time that the error names.
	RetryAfterClass Class = "retry_after"
	// UnavailableClass: something is away for the moment.
	UnavailableClass Class = "unavailable"
	// UnknownClass: any other error.
	UnknownClass Class = "unknown"
)

// Retry says when the same call should be tried again.
type Retry string

const (
	// RetryBackoff: soon, then with growing delays.
	RetryBackoff Retry = "backoff"
	// RetryAfterDelay: after the delay that the error names (see RetryAfter).
	RetryAfterDelay Retry = "after"
	// RetrySlowly: at the longest delay only, since nothing but a change of
	// the outside world (a quota raised, a config fixed) can help.
	RetrySlowly Retry = "slowly"
)

// Meaning is what a class means to each caller that reacts to errors.
type Meaning struct {
	Class Class
	// Retry is when a controller tries the same call again.
	Retry Retry
	// PodReason is the status.reason of a pod whose creation fails so.
	PodReason string
	// HTTPStatus is what an HTTP handler answers.
	HTTPStatus int
}

// ReasonProviderFailed is the status.reason of a pod that its provider could
// not create, for any class: what went wrong is in status.message.
const ReasonProviderFailed = "ProviderFailed"

// meanings is the one table of what each class means. is reports whether an error itself has
// the class, regardless of what it wraps.
var meanings = []struct {
	Meaning
	is func(error) bool
}{
	{Meaning{PermanentClass, RetrySlowly, ReasonProviderFailed, http.StatusUnprocessableEntity}, isClassified(PermanentClass)},
	{Meaning{InvalidInputClass, RetryBackoff, ReasonProviderFailed, http.StatusBadRequest}, isInvalidInputItself},
	{Meaning{NotFoundClass, RetryBackoff, ReasonProviderFailed, http.StatusNotFound}, isNotFoundItself},
	{Meaning{ConflictClass, RetryBackoff, ReasonProviderFailed, http.StatusConflict}, isConflictItself},
	{Meaning{RetryAfterClass, RetryAfterDelay, ReasonProviderFailed, http.StatusTooManyRequests}, isRetryAfterItself},
	{Meaning{UnavailableClass, RetryBackoff, ReasonProviderFailed, http.StatusServiceUnavailable}, isUnavailableItself},
	{Meaning{UnknownClass, RetryBackoff, ReasonProviderFailed, http.StatusInternalServerError}, func(error) bool { return true }},
}

// ClassOf returns the class of err. Of an error that was marked more than once, one mark
// around another, the outermost counts, whose author knew the inner ones; an error that
// wraps several (a joined one, say) has the first of their classes in the order of the
// constants. It is UnknownClass for an error that nobody classified, and the empty class
// for nil.
func ClassOf(err error) Class {
	return Describe(err).Class
}

// Describe returns what err means, by its class. For nil it is the zero
// Meaning.
func Describe(err error) Meaning {
	if err == nil {
		return Meaning{}
	}
	return meanings[place(err)].Meaning
}

// place is where meanings has the class of err.
func place(err error) int {
	found, unknown := ownPlace(err), len(meanings)-1
	if found == unknown {
		for _, one := range wrapped(err) {
			found = min(found, place(one))
		}
	}
	return found
}

// ownPlace is where meanings has the class that err itself has, regardless of what it wraps.
func ownPlace(err error) (i int) {
	for !meanings[i].is(err) {
		i++
	}
	return i
}

// has reports whether err, or an error that it wraps, has a class.
func has(err error, class Class) bool {
	for _, m := range meanings {
		if m.Class == class {
			return anyInTree(err, m.is)
		}
	}
	return false
}

func isClassified(class Class) func(error) bool {
	return func(err error) bool {
		c, ok := err.(classified)
		return ok && c.class == class
	}
}

// The Is functions of the Kubernetes API's errors follow %w only to the first
// API error, and not through errors.Join, hence the walk for them too.

func isInvalidInputItself(err error) bool {
	i, ok := err.(ErrInvalidInput)
	return ok && i.InvalidInput() || apiStatus(err, apierrors.IsInvalid) || apiStatus(err, apierrors.IsBadRequest)
}

func isNotFoundItself(err error) bool {
	n, ok := err.(ErrNotFound)
	return ok && n.NotFound() || apiStatus(err, apierrors.IsNotFound)
}

func isConflictItself(err error) bool {
	return isClassified(ConflictClass)(err) || apiStatus(err, apierrors.IsConflict) || apiStatus(err, apierrors.IsAlreadyExists)
}

func isRetryAfterItself(err error) bool {
	_, ok := err.(retryAfterError)
	return ok || apiStatus(err, apierrors.IsTooManyRequests) || apiStatus(err, func(err error) bool {
		_, names := apierrors.SuggestsClientDelay(err)
		return names
	})
}

func isUnavailableItself(err error) bool {
	return isClassified(UnavailableClass)(err) || apiStatus(err, apierrors.IsServiceUnavailable) ||
		apiStatus(err, apierrors.IsTimeout) || apiStatus(err, apierrors.IsServerTimeout)
}

// apiStatus applies is to e itself only, if it is an answer of the API.
func apiStatus(e error, is func(error) bool) bool {
	_, ok := e.(apierrors.APIStatus)
	return ok && is(e)
}

// anyInTree reports whether f holds for err or for any error that it wraps.
func anyInTree(err error, f func(error) bool) bool {
	return err != nil && (f(err) || slices.ContainsFunc(wrapped(err), func(one error) bool { return anyInTree(one, f) }))
}

// wrapped returns the errors that err wraps, with Unwrap() error, Unwrap() []error, or
// Cause() error of github.com/pkg/errors. Some may be nil.
func wrapped(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}
	case interface{ Cause() error }:
		if cause := e.Cause(); !errors.Is(cause, err) {
			return []error{cause}
		}
	}
	return nil
}
