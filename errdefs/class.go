package errdefs

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Class is a kind of failure. Its text is the value of metric labels.
type Class string

// The classes, in the order in which ClassOf looks for them.
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

// meanings is the one table of what each class means.
var meanings = []struct {
	Meaning
	is func(error) bool
}{
	{Meaning{PermanentClass, RetrySlowly, ReasonProviderFailed, http.StatusUnprocessableEntity}, isClassified(PermanentClass)},
	{Meaning{InvalidInputClass, RetryBackoff, ReasonProviderFailed, http.StatusBadRequest}, isInvalidInput},
	{Meaning{NotFoundClass, RetryBackoff, ReasonProviderFailed, http.StatusNotFound}, isNotFound},
	{Meaning{ConflictClass, RetryBackoff, ReasonProviderFailed, http.StatusConflict}, isConflict},
	{Meaning{RetryAfterClass, RetryAfterDelay, ReasonProviderFailed, http.StatusTooManyRequests}, isRetryAfter},
	{Meaning{UnavailableClass, RetryBackoff, ReasonProviderFailed, http.StatusServiceUnavailable}, isUnavailable},
	{Meaning{UnknownClass, RetryBackoff, ReasonProviderFailed, http.StatusInternalServerError}, func(error) bool { return true }},
}

// ClassOf returns the class of err. An error of several classes (a joined one,
// say) has the first of them in the order of the constants. It is UnknownClass
// for an error that nobody classified, and the empty class for nil.
func ClassOf(err error) Class {
	if err == nil {
		return ""
	}
	return Describe(err).Class
}

// Describe returns what err means, by its class. For nil it is the zero
// Meaning.
func Describe(err error) Meaning {
	if err == nil {
		return Meaning{}
	}
	for _, m := range meanings {
		if m.is(err) {
			return m.Meaning
		}
	}
	return Meaning{}
}

func has(err error, class Class) bool {
	if err == nil {
		return false
	}
	for _, m := range meanings {
		if m.Class == class {
			return m.is(err)
		}
	}
	return false
}

func isClassified(class Class) func(error) bool {
	return func(err error) bool {
		return anyInTree(err, func(e error) bool {
			c, ok := e.(classified)
			return ok && c.class == class
		})
	}
}

// The Is functions of the Kubernetes API's errors follow %w only to the first
// API error, and not through errors.Join, hence the walk for them too.

func isNotFound(err error) bool {
	return anyInTree(err, isNotFoundItself)
}

func isInvalidInput(err error) bool {
	return anyInTree(err, func(e error) bool {
		i, ok := e.(ErrInvalidInput)
		return ok && i.InvalidInput() || apiStatus(e, apierrors.IsInvalid) || apiStatus(e, apierrors.IsBadRequest)
	})
}

func isConflict(err error) bool {
	return isClassified(ConflictClass)(err) || anyInTree(err, func(e error) bool {
		return apiStatus(e, apierrors.IsConflict) || apiStatus(e, apierrors.IsAlreadyExists)
	})
}

func isUnavailable(err error) bool {
	return isClassified(UnavailableClass)(err) || anyInTree(err, func(e error) bool {
		return apiStatus(e, apierrors.IsServiceUnavailable) || apiStatus(e, apierrors.IsTimeout) ||
			apiStatus(e, apierrors.IsServerTimeout)
	})
}

func isRetryAfter(err error) bool {
	if _, ok := RetryAfter(err); ok {
		return true
	}
	return anyInTree(err, func(e error) bool { return apiStatus(e, apierrors.IsTooManyRequests) })
}

// apiStatus applies is to e itself only, if it is an answer of the API.
func apiStatus(e error, is func(error) bool) bool {
	_, ok := e.(apierrors.APIStatus)
	return ok && is(e)
}

// anyInTree reports whether f holds for err or for any error that it wraps, with
// Unwrap() error, Unwrap() []error, or Cause() error of github.com/pkg/errors.
func anyInTree(err error, f func(error) bool) bool {
	if err == nil {
		return false
	}
	if f(err) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			if anyInTree(wrapped, f) {
				return true
			}
		}
		return false
	case interface{ Unwrap() error }:
		return anyInTree(e.Unwrap(), f)
	case interface{ Cause() error }:
		if cause := e.Cause(); !errors.Is(cause, err) {
			return anyInTree(cause, f)
		}
	}
	return false
}
