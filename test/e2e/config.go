package e2e

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
)

const (
	defaultNamespace    = "default"
	defaultWatchTimeout = 2 * time.Minute
	defaultImage        = "registry.k8s.io/pause:3.10.1"
)

// EndToEndTestSuiteConfig configures an EndToEndTestSuite.
type EndToEndTestSuiteConfig struct {
	// Kubeconfig is the path of the kubeconfig of the cluster. Empty means the
	// cluster that the test runs in, as a pod.
	Kubeconfig string

	// Namespace is where the pods are created. Defaults to "default".
	Namespace string

	// NodeName is the name of the virtual node. Required.
	NodeName string

	// WatchTimeout is how long a single thing is waited for. Defaults to two
	// minutes.
	WatchTimeout time.Duration

	// Image is the image of the pods' one container, which has to run until it
	// is stopped, without a command. Defaults to Kubernetes' pause image.
	Image string

	// Setup, if set, is called before anything else; an error ends the suite.
	Setup func() error

	// Teardown, if set, is called after everything else.
	Teardown func() error

	// ShouldSkipTest, if set, reports of a test, by the name of its method,
	// whether it is to be skipped: TestGetStatsSummary, say, where the provider
	// has no statistics.
	ShouldSkipTest func(testName string) bool
}

func (cfg EndToEndTestSuiteConfig) withDefaults() EndToEndTestSuiteConfig {
	if cfg.Namespace == "" {
		cfg.Namespace = defaultNamespace
	}
	if cfg.WatchTimeout <= 0 {
		cfg.WatchTimeout = defaultWatchTimeout
	}
	if cfg.Image == "" {
		cfg.Image = defaultImage
	}
	return cfg
}

// connect makes the client. It does not talk to the cluster yet.
func (cfg EndToEndTestSuiteConfig) connect() (*nodecheck.Node, error) {
	if cfg.NodeName == "" {
		return nil, errors.New("no node is named: set NodeName to the virtual node's name")
	}
	config, err := cfg.restConfig()
	if err != nil {
		return nil, err
	}
	return nodecheck.New(config, nodecheck.Options{
		Name:      cfg.NodeName,
		Namespace: cfg.Namespace,
		Image:     cfg.Image,
		UserAgent: "virtual-kubelet-e2e",
		Patience:  cfg.WatchTimeout,
	})
}

func (cfg EndToEndTestSuiteConfig) restConfig() (*rest.Config, error) {
	if cfg.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("cannot find the cluster: set Kubeconfig to the path of a kubeconfig, or run the suite in a pod: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	return config, nil
}
