package eci

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// apiVersion is the version of the API.
	apiVersion = "2018-08-08"
	// callTimeout is the timeout of one API call.
	callTimeout = 30 * time.Second
)

// client calls the ECI API through the official SDK. It is safe for concurrent use.
type client struct {
	region         string
	scheme, domain string
	keys           *keys
	transport      http.RoundTripper
}

func newClient(c *Config) (*client, error) {
	keys, err := newKeys(c)
	if err != nil {
		return nil, err
	}
	client := &client{
		region: c.Region, keys: keys, scheme: "https", domain: "eci." + c.Region + ".aliyuncs.com",
		transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4},
	}
	if u, err := url.Parse(c.Endpoint); err == nil && u.Host != "" {
		client.scheme, client.domain = u.Scheme, u.Host
	}
	return client, nil
}

// bodyParams are the prefixes of parameters that are long or secret. They are sent in
// the body: URLs may be logged, and have a limit.
var bodyParams = []string{"Container.", "InitContainer.", "Volume.", "ImageRegistryCredential.", "ContainerGroupIds"}

// call makes one call of the API. Its error has a class, and contains no secrets.
func (c *client) call(ctx context.Context, action podgroup.Action, name string, p params, response responses.AcsResponse) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	current, err := c.keys.get(ctx)
	if err != nil {
		return err
	}
	request := requests.NewCommonRequest()
	request.Product, request.Version, request.ApiName = "Eci", apiVersion, name
	request.Method, request.Domain, request.Scheme = http.MethodPost, c.domain, c.scheme
	request.QueryParams["RegionId"] = c.region
	for name, value := range p {
		to := request.QueryParams
		if slices.ContainsFunc(bodyParams, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			to = request.FormParams
		}
		to[name] = value
	}
	request.TransToAcsRequest()
	// The SDK does not retry, since the controller does.
	config := sdk.NewConfig().WithAutoRetry(false)
	config.Transport = contextTransport{ctx, c.transport}
	// An SDK client is modified by each call, without a lock, and takes no context. So
	// each call has its own client; they share the connections.
	one, err := sdk.NewClientWithOptions(c.region, config, current.credential())
	if err == nil {
		err = one.DoAction(request, response)
	}
	return c.classify(ctx, action, request, current, err)
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

// jsonText returns a list or an object of strings as a parameter has it.
func jsonText(of any) string {
	text, err := json.Marshal(of)
	if err != nil { // cannot happen with strings
		return ""
	}
	return string(text)
}
