package rest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// NewTransport returns a transport to a server that may not answer: the parts of a connection
// have timeouts, and waiting for an answer has none. It connects to a socket in the file system
// unless that is empty. Its TLSClientConfig may be changed before it is used.
func NewTransport(socket string) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 10, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return t
}

// SameHost is the CheckRedirect of HTTP clients of other libraries that send credentials in headers
// of their own, such as X-Auth-Token, which net/http sends on, and in bodies. It follows redirects to
// the same host only, at most ten, and not from TLS to none: of others the redirect is the answer.
func SameHost(next *http.Request, via []*http.Request) error {
	from := via[0].URL
	sameServer := next.URL.Host == from.Host && next.URL.Scheme == from.Scheme
	nowWithTLS := next.URL.Hostname() == from.Hostname() && from.Scheme == "http" && next.URL.Scheme == "https"
	if len(via) > 10 || !sameServer && !nowWithTLS {
		return http.ErrUseLastResponse
	}
	return nil
}
