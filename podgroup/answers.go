package podgroup

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	utilexec "k8s.io/utils/exec"
)

// RetryAfter returns for how long the header Retry-After of an answer asks to wait, in seconds
// or until a time; zero if it does not.
func RetryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
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
