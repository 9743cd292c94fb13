package zun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// version is the microversion from which on labels and policies of capsules have their
// present form.
const version = "1.32"

// actionShow is the call for one capsule or container: it may be missing.
const actionShow podgroup.Action = "show"

// service returns the client of Zun. The first call authenticates; the client renews its
// token by itself.
func (b *backend) service(ctx context.Context) (*gophercloud.ServiceClient, error) {
	select { // a mutex would wait longer than ctx
	case b.authenticating <- struct{}{}:
		defer func() { <-b.authenticating }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b.client != nil {
		return b.client, nil
	}
	provider, err := openstack.NewClient(b.auth.IdentityEndpoint)
	if err != nil {
		return nil, err
	}
	provider.HTTPClient = http.Client{Transport: b.transport}
	if err := openstack.AuthenticateV3(ctx, provider, &b.auth, gophercloud.EndpointOpts{}); err != nil {
		return nil, err
	}
	client, err := openstack.NewContainerV1(provider, b.endpoints)
	if err != nil {
		return nil, fmt.Errorf("the catalog of Keystone has no container service (Zun) in region %q: %w", b.endpoints.Region, err)
	}
	// The client's own header names the service as Zun does not know it.
	client.MoreHeaders = map[string]string{"OpenStack-API-Version": "container " + version}
	b.client = client
	return client, nil
}

// call makes a request by f, and gives its error a class.
func (b *backend) call(ctx context.Context, action podgroup.Action, f func(*gophercloud.ServiceClient) error) error {
	client, err := b.service(ctx)
	if err == nil {
		err = f(client)
	}
	return classify(action, err)
}

// get requests a path below the endpoint.
func (b *backend) get(ctx context.Context, action podgroup.Action, path string, into any) error {
	return b.call(ctx, action, func(client *gophercloud.ServiceClient) error {
		_, err := client.Get(ctx, client.ServiceURL(path), into, nil) //nolint:bodyclose // the client closes it
		return err
	})
}

// codes are HTTP statuses of Zun's own answers. Quotas of the project are 403 or 413.
var codes = podgroup.Codes{
	Throttled: []string{"429"}, Exhausted: []string{"413"}, Denied: []string{"401", "403"}, Busy: []string{"409"}, Missing: []string{"404"},
	Away: []string{"5??"}, Refused: []string{"400", "406", "422"},
}

// answer is an error of Zun: what its status is, and what it says.
type answer struct {
	Errors []struct {
		Status        int
		Title, Detail string
	}
}

// maxErrorText is how much of Zun's text an error has.
const maxErrorText = 500

// classify returns err with its class. The text has no secrets: Zun and Keystone do not
// repeat what was sent.
func classify(action podgroup.Action, err error) error {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		err = failed.ErrReauth
	}
	refusal, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok { // nobody has answered
		return codes.Classify(action, "", 0, 0, fmt.Errorf("cannot ask OpenStack to %s: %w", action, err))
	}
	code, detail := "", http.StatusText(refusal.Actual)
	var refused answer
	if json.Unmarshal(refusal.Body, &refused) == nil && len(refused.Errors) > 0 { // else something before Zun has answered
		code, detail = strconv.Itoa(refusal.Actual), strings.TrimSpace(refused.Errors[0].Title+": "+refused.Errors[0].Detail)
	} else if refusal.Actual == http.StatusUnauthorized || refusal.Actual == http.StatusForbidden { // Keystone, or its middleware
		code = strconv.Itoa(refusal.Actual)
	}
	wait, _ := strconv.Atoi(refusal.ResponseHeader.Get("Retry-After")) // 0 if it is a date, or not there
	err = fmt.Errorf("OpenStack refuses to %s: %d %s", action, refusal.Actual, detail[:min(len(detail), maxErrorText)])
	return codes.Classify(action, code, refusal.Actual, time.Duration(wait)*time.Second, err)
}
