package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// EndToEndTestSuite is the suite. Make one with NewEndToEndTestSuite, and call
// Run; or Setup, some of the Test methods, and Teardown.
type EndToEndTestSuite struct {
	cfg    EndToEndTestSuiteConfig
	client kubernetes.Interface
	t      *testing.T // the test that called Setup
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
	client, err := s.cfg.connect()
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	s.eventually(t, "node "+s.cfg.NodeName+" is ready", s.nodeReady)
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

// ShouldSkipTest tells whether the configuration has the test of this name
// skipped.
func (s *EndToEndTestSuite) ShouldSkipTest(testName string) bool {
	return s.cfg.ShouldSkipTest != nil && s.cfg.ShouldSkipTest(testName)
}

func (s *EndToEndTestSuite) nodeReady(ctx context.Context) error {
	node, err := s.client.CoreV1().Nodes().Get(ctx, s.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return notYet("condition Ready is %s: %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return notYet("it has no condition Ready")
}
