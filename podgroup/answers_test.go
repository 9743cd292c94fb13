package podgroup_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

func TestRetryAfter(t *testing.T) {
	past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	for text, want := range map[string]time.Duration{"": 0, "15": 15 * time.Second, "-3": 0, "soon": 0, past: 0} {
		if got := podgroup.RetryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	at := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	if got := podgroup.RetryAfter(http.Header{"Retry-After": {at}}); got < 50*time.Minute || got > time.Hour {
		t.Errorf("%q: %s", at, got)
	}
}

func TestExitError(t *testing.T) {
	if err := podgroup.ExitError(0); err != nil {
		t.Errorf("a command that succeeded is %v", err)
	}
	err := podgroup.ExitError(3)
	if exit, ok := errors.AsType[utilexec.ExitError](err); !ok || exit.ExitStatus() != 3 || err.Error() != "command terminated with exit code 3" {
		t.Errorf("a command that failed is %v", err)
	}
}
