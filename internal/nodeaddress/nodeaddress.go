// Package nodeaddress finds the address of this machine that a Node should have: one
// under which the API server can reach the kubelet API.
package nodeaddress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// ErrUnreachable is why Towards knows no address for the moment: name resolution or the
// network may not be up yet.
var ErrUnreachable = errors.New("cannot find out from which address the API server is reached")

// Towards is the address from which the API server at the given URL is reached, or the
// proxy to it, unless that is on this machine; nil means http.ProxyFromEnvironment. No
// packet is sent for it, but those that resolve the name. The API server does not proxy to
// loopback addresses: where it runs on this machine, its URL is empty, or only a proxy on
// this machine knows the way to it, the result is that of Own.
func Towards(ctx context.Context, server string, proxy func(*http.Request) (*url.URL, error)) (net.IP, error) {
	if server == "" {
		return Own()
	}
	ip, err := localTowards(ctx, server, proxy)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if ip.IsGlobalUnicast() {
		return ip, nil
	}
	return Own()
}

// Own is some address of this machine but loopback, IPv4 preferred. The error is that
// there is none.
func Own() (net.IP, error) {
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

func localTowards(ctx context.Context, server string, proxy func(*http.Request) (*url.URL, error)) (net.IP, error) {
	if !strings.Contains(server, "://") { // as a rest.Config may have it
		server = "https://" + server
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server, nil)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	first, err := proxy(request)
	if err != nil {
		return nil, err
	}
	if first == nil {
		return localTo(ctx, request.URL)
	}
	ip, err := localTo(ctx, first)
	if err == nil && ip.IsLoopback() { // that of the server is what counts, if this machine knows it
		if direct, err := localTo(ctx, request.URL); err == nil {
			return direct, nil
		}
	}
	return ip, err
}

// localTo is the address from which packets to the host of a URL are sent.
func localTo(ctx context.Context, to *url.URL) (net.IP, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "443")))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP, nil
}
