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
	for text, want := range map[string]time.Duration{"": 0, "15": 15 * time.Second, "-3": 0, "soon": 0, past: 0, "3600": time.Hour,
		"3601": time.Hour, "9300000000": time.Hour, "18446744074": time.Hour, "99999999999999999999": time.Hour, "-99999999999999999999": 0, "1e9": 0,
		"Sun, 06 Nov 1994 08:49:37 GMT": 0, "Fri, 01 Jan 9999 00:00:00 GMT": time.Hour,
	} {
		if got := podgroup.RetryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	at := time.Now().Add(55 * time.Minute).UTC().Format(http.TimeFormat)
	if got := podgroup.RetryAfter(http.Header{"Retry-After": {at}}); got < 50*time.Minute || got > 55*time.Minute {
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
