//go:build integration

package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// ownControlPlane is set for a process of which one test has the control plane for itself.
const ownControlPlane = "TEST_OWN_CONTROL_PLANE"

// withOwnControlPlane reports whether the test has the control plane for itself, so that it may
// stop the API server. If it has not, it is run again, beside other tests, in a process where
// it has.
func withOwnControlPlane(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownControlPlane) != "" {
		return true
	}
	t.Parallel() // it waits most of the time
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+(time.Until(deadline)*9/10).String())
	}
	command := exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Env = append(os.Environ(), ownControlPlane+"=1")
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
