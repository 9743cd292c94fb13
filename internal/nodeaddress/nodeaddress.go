// Package nodeaddress finds the address of this machine that a Node should have: one
// under which the API server can reach the kubelet API.
package nodeaddress

import (
	"errors"
	"fmt"
	"net"
	"net/url"
)

// Towards is the address from which the API server at the given URL is reached. No
// packet is sent for it. The API server does not proxy to loopback addresses: where it
// runs on this machine, or its URL is empty, the result is another address of
// the machine, IPv4 preferred. The error is that there is none.
func Towards(server string) (net.IP, error) {
	if ip := localTowards(server); ip != nil && ip.IsGlobalUnicast() {
		return ip, nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("cannot list this machine's addresses: %w", err)
	}
	var found net.IP
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			if network.IP.To4() != nil {
				return network.IP, nil
			}
			found = network.IP
		}
	}
	if found == nil {
		return nil, errors.New("this machine has no address but loopback, which the API server does not proxy to")
	}
	return found, nil
}

func localTowards(server string) net.IP {
	u, err := url.Parse(server)
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
