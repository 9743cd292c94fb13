package errdefs

import (
	"errors"
	"fmt"
	"slices"
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
// than one %w) each has to mean that, and one with a mark of another class around it,
// such as AsUnavailable's, is a failure in which something else was not there. Ask it
// where an absence is final, as a pod's end is; IsNotFound is also true if only one of
// several errors is NotFound. It is false for nil.
func IsOnlyNotFound(err error) bool {
	if err == nil || isNotFoundItself(err) {
		return err != nil // the error as a whole says so, regardless of what it wraps
	}
	if meanings[ownPlace(err)].Class != UnknownClass {
		return false
	}
	several := slices.DeleteFunc(slices.Clone(wrapped(err)), func(one error) bool { return one == nil })
	return len(several) > 0 && !slices.ContainsFunc(several, func(one error) bool { return !IsOnlyNotFound(one) })
}
