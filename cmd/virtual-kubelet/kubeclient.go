package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeConfig finds the API server, and says where it found it.
func kubeConfig(o *options) (config *rest.Config, source string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	switch {
	case o.kubeconfig != "":
		rules.ExplicitPath = o.kubeconfig
		source = "--kubeconfig " + o.kubeconfig
	case os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		source = "KUBECONFIG " + os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	default:
		if config, err = rest.InClusterConfig(); err == nil {
			return limit(config, o), "the pod's service account", nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", fmt.Errorf("cannot use the pod's service account: %w", err)
		}
		source = clientcmd.RecommendedHomeFile
	}
	config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", fmt.Errorf("no cluster found (looked at %s): give --kubeconfig, or set KUBECONFIG", source)
	}
	if err != nil {
		return nil, "", fmt.Errorf("cannot use the kubeconfig (%s): %w", source, err)
	}
	return limit(config, o), source, nil
}

func limit(config *rest.Config, o *options) *rest.Config {
	config.QPS = o.kubeAPIQPS
	config.Burst = o.kubeAPIBurst
	if config.Burst <= 0 && config.QPS > 0 {
		config.Burst = int(2 * config.QPS)
	}
	config.UserAgent = "virtual-kubelet/" + o.nodeName
	return config
}
