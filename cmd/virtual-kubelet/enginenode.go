//go:build !chosen_providers || provider_cri || provider_process

package main

import "github.com/virtual-kubelet/virtual-kubelet/podengine/machine"

// machine is the node for a provider whose containers run on this machine.
func (init *providerInit) machine() machine.Node {
	return machine.Node{ProviderConfig: init.ProviderConfig, Name: init.NodeName, ClusterDomain: init.ClusterDomain, Sent: init.sent}
}
