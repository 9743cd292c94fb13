package errdefs

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrNotFound is an error that says of itself whether it means that a thing is
// not there. A type of one's own that implements it is as good as NotFound.
type ErrNotFound interface {
	NotFound() bool
	error
}

type notFoundError struct{ error }

func (notFoundError) NotFound() bool  { return true }
func (e notFoundError) Unwrap() error { return e.error }

// Cause is what users of github.com/pkg/errors ask for.
func (e notFoundError) Cause() error { return e.error }

// AsNotFound marks err as a NotFound error; nil stays nil.
func AsNotFound(err error) error {
	if err == nil {
		return nil
	}
	return notFoundError{err}
}

// NotFound makes a NotFound error with the given message.
func NotFound(msg string) error { return notFoundError{errors.New(msg)} }

// NotFoundf makes a NotFound error with a formatted message; %w works.
func NotFoundf(format string, args ...any) error {
	return notFoundError{fmt.Errorf(format, args...)}
}

// IsNotFound reports whether err, or an error that it wraps, means that a thing
// is not there. It is false for nil.
func IsNotFound(err error) bool {
	return has(err, NotFoundClass)
}

// IsOnlyNotFound reports whether err means that a thing is not there, and that
// nothing else went wrong: of an error that wraps several (errors.Join, or more
// than one %w) each has to mean that. Ask it where an absence is final, as a
// pod's end is; IsNotFound is also true if only one of several errors is NotFound.
// It is false for nil.
func IsOnlyNotFound(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case interface{ Unwrap() []error }:
		if isNotFoundItself(err) {
			return true // the error as a whole says so, regardless of what it wraps
		}
		several := slices.DeleteFunc(slices.Clone(e.Unwrap()), func(one error) bool { return one == nil })
		return len(several) > 0 && !slices.ContainsFunc(several, func(one error) bool { return !IsOnlyNotFound(one) })
	case interface{ Unwrap() error }:
		return isNotFoundItself(err) || IsOnlyNotFound(e.Unwrap())
	case interface{ Cause() error }:
		cause := e.Cause()
		return isNotFoundItself(err) || !errors.Is(cause, err) && IsOnlyNotFound(cause)
	}
	return isNotFoundItself(err)
}

// isNotFoundItself reports whether err itself is NotFound, regardless of what it wraps.
func isNotFoundItself(err error) bool {
	n, ok := err.(ErrNotFound)
	return ok && n.NotFound() || apiStatus(err, apierrors.IsNotFound)
}
