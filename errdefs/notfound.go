package errdefs

import (
	"errors"
	"fmt"
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

// IsNotFound tells whether err, or an error that it wraps, means that a thing
// is not there. It is false for nil.
func IsNotFound(err error) bool {
	return has(err, NotFoundClass)
}
