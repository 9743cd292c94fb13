package e2e

import "testing"

// TestGetStatsSummary checks that a pod that runs is in the kubelet's
// /stats/summary, together with the node's name.
func (s *EndToEndTestSuite) TestGetStatsSummary(t *testing.T) { s.check(t, "stats-summary") }

// TestGetMetricsResource checks that a pod that runs is in the kubelet's
// /metrics/resource.
func (s *EndToEndTestSuite) TestGetMetricsResource(t *testing.T) { s.check(t, "metrics-resource") }
