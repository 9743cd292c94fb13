package e2e

import "testing"

// TestGetPods checks that the kubelet lists a pod that runs: at /pods, and at
// /runningpods/ where that is served.
func (s *EndToEndTestSuite) TestGetPods(t *testing.T) { s.check(t, "pod-listed") }
