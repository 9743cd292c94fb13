package e2e

import "testing"

// TestPodLifecycleGracefulDelete checks that a pod that is deleted is marked
// first, and leaves the API, and the kubelet's list, once it has stopped.
func (s *EndToEndTestSuite) TestPodLifecycleGracefulDelete(t *testing.T) {
	s.check(t, "delete-graceful")
}

// TestPodLifecycleForceDelete checks that a pod that is deleted with force
// leaves the API at once, and the kubelet's list soon after.
func (s *EndToEndTestSuite) TestPodLifecycleForceDelete(t *testing.T) {
	s.check(t, "delete-force")
}
