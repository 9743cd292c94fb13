package errdefs

import (
	"errors"
	"fmt"
)

// ErrInvalidInput is an error that says of itself whether it means that the
// request, not its execution, was at fault.
type ErrInvalidInput interface {
	InvalidInput() bool
	error
}

type invalidInputError struct{ error }

func (invalidInputError) InvalidInput() bool { return true }
func (e invalidInputError) Unwrap() error    { return e.error }

// Cause is what users of github.com/pkg/errors ask for.
func (e invalidInputError) Cause() error { return e.error }

// AsInvalidInput marks err as an InvalidInput error; nil stays nil.
func AsInvalidInput(err error) error {
	if err == nil {
		return nil
	}
	return invalidInputError{err}
}

// InvalidInput makes an InvalidInput error with the given message.
func InvalidInput(msg string) error { return invalidInputError{errors.New(msg)} }

// InvalidInputf makes an InvalidInput error with a formatted message; %w works.
func InvalidInputf(format string, args ...any) error {
	return invalidInputError{fmt.Errorf(format, args...)}
}

// IsInvalidInput reports whether err, or an error that it wraps, means that the
// request was at fault. It is false for nil.
func IsInvalidInput(err error) bool {
	return has(err, InvalidInputClass)
}
