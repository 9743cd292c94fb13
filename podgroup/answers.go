package podgroup

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	utilexec "k8s.io/utils/exec"
)

// maxRetryAfter is the longest that a service may ask to wait: a header that is wrong, or a clock,
// must not stop a node for years.
const maxRetryAfter = time.Hour

// RetryAfter returns for how long the header Retry-After of an answer asks to wait, in seconds
// or until a time; zero if it does not. It is an hour at most.
func RetryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	return 0
}

// ExitError returns the error of a command that has ended with a code, that an Execer returns
// (k8s.io/utils/exec.ExitError); nil for zero.
func ExitError(code int) error {
	if code == 0 {
		return nil
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
}
