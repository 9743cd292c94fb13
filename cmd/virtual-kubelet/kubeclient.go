package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtual-kubelet/virtual-kubelet/internal/kubeconfig"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// clusterConfig returns the API server and the credentials for it: those of
// --kubeconfig and its defaults or, with --bootstrap-kubeconfig, the node's own identity,
// which is to be run, and the config made of it once it is ready.
func clusterConfig(ctx context.Context, o *options) (config *rest.Config, source string, identity *nodeutil.NodeIdentity, err error) {
	if o.bootstrap == "" {
		config, source, err = kubeConfig(o)
		return config, source, nil, err
	}
	if o.kubeconfig != "" {
		_, err := os.Stat(o.kubeconfig)
		if err == nil {
			if config, source, err = kubeConfig(o); err != nil || hasCredentials(config) {
				return config, source, nil, err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", nil, fmt.Errorf("cannot use --kubeconfig: %w", err)
		}
	}
	identity, err = nodeutil.NewNodeIdentity(ctx, nodeutil.NodeIdentityConfig{NodeName: o.nodeName, BootstrapKubeconfig: o.bootstrap, CertDir: o.certDir})
	if err != nil {
		return nil, "", nil, err
	}
	return nil, "system:node:" + o.nodeName + " by --bootstrap-kubeconfig " + o.bootstrap, identity, nil
}

func hasCredentials(c *rest.Config) bool {
	return c.BearerToken != "" || c.BearerTokenFile != "" || c.Username != "" || c.ExecProvider != nil || c.AuthProvider != nil ||
		len(c.CertData) > 0 || c.CertFile != ""
}

// kubeConfig finds the API server, and returns where it found it.
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
	config, err = kubeconfig.Merge(rules, "")
	if errors.Is(err, kubeconfig.ErrNoCluster) && source == clientcmd.RecommendedHomeFile {
		return nil, "", fmt.Errorf("no cluster found (tried %s): give --kubeconfig, or set KUBECONFIG", source)
	}
	if err != nil {
		return nil, "", fmt.Errorf("cannot use the kubeconfig (%s): %w", source, err)
	}
	return limit(config, o), source, nil
}

func limit(config *rest.Config, o *options) *rest.Config {
	config.QPS, config.Burst = o.requestLimit()
	if o.live != nil {
		config.QPS = -1 // the limit is that in force
		config.Wrap(o.live.requests.wrap)
	}
	config.UserAgent = "virtual-kubelet/" + o.nodeName
	return config
}

// requestLimit returns how many requests to the API server there may be in a second, and at
// once.
func (o *options) requestLimit() (qps float32, burst int) {
	burst = o.kubeAPIBurst
	if burst <= 0 && o.kubeAPIQPS > 0 {
		burst = max(1, int(2*o.kubeAPIQPS))
	}
	return o.kubeAPIQPS, burst
}
