package e2e

import (
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

func TestDefaults(t *testing.T) {
	cfg := NewEndToEndTestSuite(EndToEndTestSuiteConfig{}).cfg
	if cfg.Namespace != "default" || cfg.WatchTimeout != 2*time.Minute || cfg.Image == "" {
		t.Errorf("got %+v", cfg)
	}
	cfg = NewEndToEndTestSuite(EndToEndTestSuiteConfig{Namespace: "ns", WatchTimeout: time.Second, Image: "i"}).cfg
	if cfg.Namespace != "ns" || cfg.WatchTimeout != time.Second || cfg.Image != "i" {
		t.Errorf("what was set is not kept: %+v", cfg)
	}
}

func TestShouldSkipTest(t *testing.T) {
	if NewEndToEndTestSuite(EndToEndTestSuiteConfig{}).ShouldSkipTest("TestGetPods") {
		t.Error("a test is skipped though nobody asked for it")
	}
	s := NewEndToEndTestSuite(EndToEndTestSuiteConfig{ShouldSkipTest: func(name string) bool { return name == "TestGetPods" }})
	if !s.ShouldSkipTest("TestGetPods") || s.ShouldSkipTest("TestGetStatsSummary") {
		t.Error("not the tests that were asked for are skipped")
	}
}

func TestConnectErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	for _, c := range []struct {
		cfg  EndToEndTestSuiteConfig
		want string
	}{
		{EndToEndTestSuiteConfig{NodeName: "node", Kubeconfig: missing}, "cannot use the kubeconfig " + missing},
		{EndToEndTestSuiteConfig{Kubeconfig: missing}, "set NodeName"},
	} {
		if _, err := c.cfg.connect(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.want)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := (EndToEndTestSuiteConfig{NodeName: "node"}).connect(); err == nil || !strings.Contains(err.Error(), "set Kubeconfig") {
		t.Errorf("without a kubeconfig: %v", err)
	}
}

// Each Test method is run, under its own name.
func TestAllTestsAreRun(t *testing.T) {
	s := NewEndToEndTestSuite(EndToEndTestSuiteConfig{})
	listed := map[string]bool{}
	for _, test := range s.tests() {
		listed[test.name] = true
	}
	methods := 0
	for method := range reflect.TypeFor[*EndToEndTestSuite]().Methods() {
		if strings.HasPrefix(method.Name, "Test") {
			methods++
			if !listed[method.Name] {
				t.Errorf("%s is not run", method.Name)
			}
		}
	}
	if methods != len(listed) {
		t.Errorf("%d tests are run, there are %d methods", len(listed), methods)
	}
}

func TestTeardown(t *testing.T) {
	called := 0
	s := NewEndToEndTestSuite(EndToEndTestSuiteConfig{Teardown: func() error { called++; return io.EOF }})
	s.Teardown() // without Setup there is no test to fail
	if called != 1 {
		t.Errorf("the configured Teardown was called %d times", called)
	}
	NewEndToEndTestSuite(EndToEndTestSuiteConfig{}).Teardown()
}
