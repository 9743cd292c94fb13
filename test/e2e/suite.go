package e2e

import (
	"context"
	"slices"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
)

// EndToEndTestSuite is the suite. Make one with NewEndToEndTestSuite, and call
// Run; or Setup, some of the Test methods, and Teardown.
type EndToEndTestSuite struct {
	cfg  EndToEndTestSuiteConfig
	node *nodecheck.Node // set by Setup
	t    *testing.T      // the test that called Setup
}

// NewEndToEndTestSuite makes a suite. What is wrong with cfg is reported by
// Setup.
func NewEndToEndTestSuite(cfg EndToEndTestSuiteConfig) *EndToEndTestSuite {
	return &EndToEndTestSuite{cfg: cfg.withDefaults()}
}

// namedTest is one of the suite's tests.
type namedTest struct {
	name string
	run  func(*testing.T)
}

// tests are all tests, in the order in which they run.
func (s *EndToEndTestSuite) tests() []namedTest {
	return []namedTest{
		{"TestGetPods", s.TestGetPods},
		{"TestGetStatsSummary", s.TestGetStatsSummary},
		{"TestGetMetricsResource", s.TestGetMetricsResource},
		{"TestPodLifecycleGracefulDelete", s.TestPodLifecycleGracefulDelete},
		{"TestPodLifecycleForceDelete", s.TestPodLifecycleForceDelete},
		{"TestCreatePodWithOptionalInexistentSecrets", s.TestCreatePodWithOptionalInexistentSecrets},
		{"TestCreatePodWithOptionalInexistentConfigMap", s.TestCreatePodWithOptionalInexistentConfigMap},
		{"TestCreatePodWithMandatoryInexistentSecrets", s.TestCreatePodWithMandatoryInexistentSecrets},
		{"TestCreatePodWithMandatoryInexistentConfigMap", s.TestCreatePodWithMandatoryInexistentConfigMap},
	}
}

// Run runs the whole suite: Setup, each test that is not to be skipped as a
// subtest of t, and Teardown, also after a Setup that failed.
func (s *EndToEndTestSuite) Run(t *testing.T) {
	defer s.Teardown()
	s.Setup(t)
	for _, test := range s.tests() {
		t.Run(test.name, func(t *testing.T) {
			if s.ShouldSkipTest(test.name) {
				t.Skip("skipped by the suite's configuration")
			}
			test.run(t)
		})
	}
}

// Setup calls the configured Setup, connects to the cluster, and waits until
// the node is ready. What goes wrong ends t.
func (s *EndToEndTestSuite) Setup(t *testing.T) {
	t.Helper()
	s.t = t
	if s.cfg.Setup != nil {
		if err := s.cfg.Setup(); err != nil {
			t.Fatalf("the configured Setup failed: %v", err)
		}
	}
	var err error
	if s.node, err = s.cfg.connect(); err != nil {
		t.Fatal(err)
	}
	if err := s.node.Poll(t.Context(), s.node.Ready); err != nil {
		t.Fatalf("waiting until node %s is ready: %v", s.cfg.NodeName, err)
	}
}

// Teardown calls the configured Teardown; its error fails the test that called
// Setup, which must not have ended.
func (s *EndToEndTestSuite) Teardown() {
	if s.cfg.Teardown == nil {
		return
	}
	if err := s.cfg.Teardown(); err != nil && s.t != nil {
		s.t.Errorf("the configured Teardown failed: %v", err)
	}
}

// ShouldSkipTest reports whether the configuration has the test of this name
// skipped.
func (s *EndToEndTestSuite) ShouldSkipTest(testName string) bool {
	return s.cfg.ShouldSkipTest != nil && s.cfg.ShouldSkipTest(testName)
}

// check makes a check of the conformance kit, by its name.
func (s *EndToEndTestSuite) check(t *testing.T, name string) {
	t.Helper()
	checks := nodecheck.Checks()
	i := slices.IndexFunc(checks, func(c nodecheck.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %q", name)
	}
	switch result := checks[i].Run(t.Context(), s.node); result.Outcome {
	case nodecheck.Passed:
	case nodecheck.NotSupported:
		t.Fatalf("the provider does not implement this; see ShouldSkipTest: %s", result.Why)
	default:
		t.Fatalf("%s\n%s", result.Why, result.Details)
	}
}

// inScope runs a test that makes pods, which are removed in the end.
func (s *EndToEndTestSuite) inScope(t *testing.T, name string, test func(context.Context, *nodecheck.Scope) error) {
	t.Helper()
	scope := s.node.Begin(name)
	t.Cleanup(func() {
		if err := scope.End(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := test(t.Context(), scope); err != nil {
		t.Fatalf("%v\n%s", err, scope.Describe(t.Context()))
	}
}
