package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodeaddress"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// addressRetry is the longest time between two attempts to find the node's address.
const addressRetry = 10 * time.Second

// nodeAddress returns the address at which the API server can reach this process:
// $VKUBELET_POD_IP, --listen-address, or the address from which this process reaches
// the API server. It waits, until ctx ends, for name resolution and the network: nobody
// would correct a guess.
func nodeAddress(ctx context.Context, o *options, config *rest.Config) (string, error) {
	if o.nodeIP != "" {
		return o.nodeIP, nil
	}
	if ip := net.ParseIP(o.listenAddress); ip != nil && ip.IsGlobalUnicast() {
		return ip.String(), nil
	}
	backoff := periodic.Backoff(addressRetry)
	for logged := false; ; logged = true {
		ip, err := nodeaddress.Towards(ctx, config.Host, config.Proxy)
		if err == nil {
			return ip.String(), nil
		}
		err = fmt.Errorf("no address for the node (set VKUBELET_POD_IP to one that the API server can reach): %w", err)
		if !errors.Is(err, nodeaddress.ErrUnreachable) {
			return "", err
		}
		if !logged {
			log.G(ctx).WithError(err).Warn("The API server cannot be reached yet; trying again until it can")
		}
		if ended := periodic.Sleep(ctx, backoff.Step()); ended != nil {
			return "", fmt.Errorf("%w: %w", ended, err)
		}
	}
}
