package main

import (
	"fmt"
	"net"
	"net/url"

	"k8s.io/client-go/rest"
)

// nodeAddress is the address under which the API server can reach this process:
// the one that is given, the one that is listened on, or the one from which the
// API server is reached. The API server does not proxy to loopback addresses,
// so that where it runs on this machine another address of it is taken.
func nodeAddress(o *options, config *rest.Config) (string, error) {
	if o.nodeIP != "" {
		if net.ParseIP(o.nodeIP) == nil {
			return "", usagef("VKUBELET_POD_IP is %q, which is no IP address", o.nodeIP)
		}
		return o.nodeIP, nil
	}
	if ip := net.ParseIP(o.listenAddress); ip != nil && ip.IsGlobalUnicast() {
		return ip.String(), nil
	}
	if ip := localAddressTowards(config.Host); ip != nil && ip.IsGlobalUnicast() {
		return ip.String(), nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("cannot list this machine's addresses (set VKUBELET_POD_IP): %w", err)
	}
	var found net.IP
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			if network.IP.To4() != nil {
				return network.IP.String(), nil
			}
			found = network.IP
		}
	}
	if found != nil {
		return found.String(), nil
	}
	return "", fmt.Errorf("this machine has no address but loopback, which the API server does not proxy to: set VKUBELET_POD_IP to one that it can reach")
}

// localAddressTowards is the local address of packets to a server; none is sent.
func localAddressTowards(host string) net.IP {
	u, err := url.Parse(host)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	conn, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil
	}
	defer conn.Close()
	if local, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		return local.IP
	}
	return nil
}
