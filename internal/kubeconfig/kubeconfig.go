// Package kubeconfig makes client configurations of kubeconfig files. Unlike client-go's
// deferred loading it never takes the service account of the pod instead, which most often
// is one of another cluster than that which somebody has named a file for.
package kubeconfig

import (
	"errors"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoCluster is about a file without a cluster that is to be used.
var ErrNoCluster = errors.New("it names no cluster: it is missing or empty, or no context is chosen in it (set its current-context, as kubectl config use-context does)")

// Load returns the client configuration of a file: that of the context or, if it is empty,
// of the file's current one. Callers name the file in the error.
func Load(file, context string) (*rest.Config, error) {
	return Merge(&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, context)
}

// Merge is Load of the files that rules find.
func Merge(rules *clientcmd.ClientConfigLoadingRules, context string) (*rest.Config, error) {
	merged, err := rules.Load()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*merged, context, nil, rules).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, ErrNoCluster
	}
	return config, err
}
