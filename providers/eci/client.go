package eci

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
)

// callTimeout is the timeout of one API call.
const callTimeout = 30 * time.Second

// client calls the ECI API through the official SDK. It is safe for concurrent use.
type client struct {
	region               string
	accessKey, secretKey Secret
	scheme, domain       string
	transport            http.RoundTripper
}

func newClient(c *Config) *client {
	client := &client{
		region: c.Region, accessKey: c.AccessKey, secretKey: c.SecretKey,
		scheme: "https", domain: "eci." + c.Region + ".aliyuncs.com",
		transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4},
	}
	if u, err := url.Parse(c.Endpoint); err == nil && u.Host != "" {
		client.scheme, client.domain = u.Scheme, u.Host
	}
	return client
}

// do makes one call. Its error has a class, and contains no secrets.
func (c *client) do(ctx context.Context, request requests.AcsRequest, response responses.AcsResponse) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request.SetDomain(c.domain)
	request.SetScheme(c.scheme)
	// The SDK does not retry, since the controller does.
	config := sdk.NewConfig().WithAutoRetry(false)
	config.Transport = contextTransport{ctx, c.transport}
	// An SDK client is modified by each call, without a lock, and takes no context. So
	// each call has its own client; they share the connections.
	one, err := eci.NewClientWithOptions(c.region, config, credentials.NewAccessKeyCredential(c.accessKey.Reveal(), c.secretKey.Reveal()))
	if err == nil {
		err = one.DoAction(request, response)
	}
	return c.classify(ctx, request, err)
}

// contextTransport sends requests with a context.
type contextTransport struct {
	ctx context.Context
	http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w contextTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return w.RoundTripper.RoundTrip(r.WithContext(w.ctx))
}

// closeIdle closes idle connections.
func (c *client) closeIdle() {
	(&http.Client{Transport: c.transport}).CloseIdleConnections()
}
