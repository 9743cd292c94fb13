package errdefs

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// classified is an error of one of the classes that only retries care about.
type classified struct {
	error
	class Class
}

func (e classified) Unwrap() error { return e.error }

func as(err error, class Class) error {
	if err == nil {
		return nil
	}
	return classified{err, class}
}

// AsUnavailable marks err as the failure of something that is away for the
// moment: the same call may work later. nil stays nil.
func AsUnavailable(err error) error { return as(err, UnavailableClass) }

// IsUnavailable reports whether err means that something is away for the moment.
func IsUnavailable(err error) bool { return has(err, UnavailableClass) }

// AsConflict marks err as a clash with the present state of a thing (it exists
// already, or has changed meanwhile): look again, then decide. nil stays nil.
func AsConflict(err error) error { return as(err, ConflictClass) }

// IsConflict reports whether err means a clash with the present state of a thing.
func IsConflict(err error) bool { return has(err, ConflictClass) }

// AsPermanent marks err as one that no retry of the same call will cure. A pod
// whose creation fails so becomes Failed at once, regardless of its restartPolicy, so that
// its controller replaces it: leave it to errors that the pod itself is to blame for.
// nil stays nil.
func AsPermanent(err error) error { return as(err, PermanentClass) }

// IsPermanent reports whether err says that no retry will cure it.
func IsPermanent(err error) bool { return has(err, PermanentClass) }

type retryAfterError struct {
	error
	delay time.Duration
}

func (e retryAfterError) Unwrap() error { return e.error }

// AsRetryAfter marks err as one that names the time after which the same call
// should be tried again, as a backend with a rate limit does. A negative delay
// counts as zero. nil stays nil.
func AsRetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return retryAfterError{err, max(delay, 0)}
}

// RetryAfter returns the delay that err asks for before the next try, and
// whether it asks for one. Answers of the Kubernetes API with a Retry-After
// count as well.
func RetryAfter(err error) (time.Duration, bool) {
	if e, ok := errors.AsType[retryAfterError](err); ok {
		return e.delay, true
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(seconds) * time.Second, true
	}
	return 0, false
}
