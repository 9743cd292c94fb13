package e2e_test

import (
	"fmt"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/test/e2e"
)

// What a test in a provider's repository does.
func Example() {
	suite := func() *e2e.EndToEndTestSuite {
		return e2e.NewEndToEndTestSuite(e2e.EndToEndTestSuiteConfig{
			Kubeconfig: "/path/to/kubeconfig",
			NodeName:   "my-virtual-node",
			// This provider has no statistics.
			ShouldSkipTest: func(name string) bool { return name == "TestGetStatsSummary" || name == "TestGetMetricsResource" },
		})
	}
	_ = func(t *testing.T) { // func TestEndToEnd(t *testing.T)
		suite().Run(t)
	}
	fmt.Println(suite().ShouldSkipTest("TestGetPods"), suite().ShouldSkipTest("TestGetStatsSummary"))
	// Output: false true
}
