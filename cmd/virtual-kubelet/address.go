package main

import (
	"fmt"
	"net"

	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodeaddress"
)

// nodeAddress returns the address at which the API server can reach this process:
// $VKUBELET_POD_IP, --listen-address, or the address from which this process reaches
// the API server.
func nodeAddress(o *options, config *rest.Config) (string, error) {
	if o.nodeIP != "" {
		return o.nodeIP, nil
	}
	if ip := net.ParseIP(o.listenAddress); ip != nil && ip.IsGlobalUnicast() {
		return ip.String(), nil
	}
	ip, err := nodeaddress.Towards(config.Host)
	if err != nil {
		return "", fmt.Errorf("no address for the node (set VKUBELET_POD_IP to one that the API server can reach): %w", err)
	}
	return ip.String(), nil
}
