package kubernetes

import (
	"errors"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/kubeconfig"
)

func (r *Remote) check() error {
	ways := 0
	for _, given := range []bool{r.Kubeconfig != "", r.InCluster, r.Server != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("remote: set exactly one of kubeconfig, inCluster and server")
	case r.Context != "" && r.Kubeconfig == "":
		return errors.New("remote.context requires remote.kubeconfig")
	case r.Server == "" && (r.CAFile != "" || r.TokenFile != ""):
		return errors.New("remote.caFile and remote.tokenFile require remote.server")
	case r.Server != "" && r.TokenFile == "":
		return errors.New("remote.server needs remote.tokenFile, the path of a token of the remote cluster")
	case r.QPS < 0:
		return fmt.Errorf("remote.qps: %v is negative", r.QPS)
	}
	if u, err := url.Parse(r.Server); r.Server != "" && (err != nil || u.Host == "" || u.Scheme != "https") {
		return fmt.Errorf("remote.server: %q is not a URL that begins with https://", r.Server)
	}
	return nil
}

// Config returns the client configuration for the remote cluster.
func (r *Remote) Config() (*rest.Config, error) {
	var config *rest.Config
	var err error
	switch {
	case r.Kubeconfig != "":
		if config, err = kubeconfig.Load(r.Kubeconfig, r.Context); err != nil {
			err = fmt.Errorf("kubeconfig %s: %w", r.Kubeconfig, err)
		}
	case r.InCluster:
		config, err = rest.InClusterConfig()
	default:
		config = &rest.Config{Host: r.Server, BearerTokenFile: r.TokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: r.CAFile}}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use the remote cluster's configuration: %w", err)
	}
	config.QPS = -1 // the limit is the API server's priority and fairness
	if r.QPS > 0 {
		config.QPS, config.Burst = r.QPS, max(int(2*r.QPS), 1)
	}
	config.UserAgent = "virtual-kubelet"
	return config, nil
}
