package zun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
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
	provider.HTTPClient = http.Client{Transport: b.transport, CheckRedirect: rest.SameHost} // its token is in a header of its own
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

// text returns what Zun says, without the values that it repeats of the request if it finds that
// wrong: they may be secret.
func (a *answer) text() string {
	title, detail := a.Errors[0].Title, a.Errors[0].Detail
	text := strings.TrimSpace(title + ": " + detail)
	if title == detail || strings.HasPrefix(detail, title) { // Zun's own errors have the text twice
		text = detail
	}
	if strings.Contains(text, "Value: ") || strings.Contains(text, "On instance") {
		text = "invalid input: " + strings.Join(append(invalidField.FindAllString(text, 1), invalidWhy.FindAllString(text, 1)...), ": ")
	}
	return text[:min(len(text), 500)]
}

// invalidField and invalidWhy are what has no values of an error of Zun's check of requests.
var (
	invalidField = regexp.MustCompile(`field '[\w-]+'`)
	invalidWhy   = regexp.MustCompile(`Additional properties are not allowed \('[\w-]+'(, '[\w-]+')* (was|were) unexpected\)|'[\w-]+' is a required property`)
)

// stillInUse is Zun's text of a volume, or a port, that another capsule has not given back yet.
// Its status is that of a request that is wrong.
var stillInUse = regexp.MustCompile(`^(Volume|Port) \S+ is still in use`)

// classify returns err with its class. The text has no secrets: see answer.text.
func classify(action podgroup.Action, err error) error {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		err = failed.ErrReauth
	}
	refusal, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok { // nobody has answered
		if failed, ok := errors.AsType[*url.Error](err); ok { // its address has the command that was to be run
			failed.URL, _, _ = strings.Cut(failed.URL, "?")
			err = failed
		}
		return codes.Classify(action, "", 0, 0, fmt.Errorf("cannot ask OpenStack to %s: %w", action, err))
	}
	code, detail := "", http.StatusText(refusal.Actual)
	var refused answer
	if json.Unmarshal(refusal.Body, &refused) == nil && len(refused.Errors) > 0 { // else something before Zun has answered
		code, detail = strconv.Itoa(refusal.Actual), refused.text()
	} else if refusal.Actual == http.StatusUnauthorized || refusal.Actual == http.StatusForbidden { // Keystone, or its middleware
		code = strconv.Itoa(refusal.Actual)
	}
	err = fmt.Errorf("OpenStack refuses to %s: %d %s", action, refusal.Actual, detail)
	switch {
	case action != podgroup.ActionCreate:
	case code == "400" && stillInUse.MatchString(detail): // found before a host is looked for, and nothing is left to start
		return podgroup.NotCreated(codes.Classify(action, "409", refusal.Actual, 0, err))
	case code == "403" && strings.Contains(detail, "image_pull_policy"): // it leaves a capsule that is never created
		return errdefs.AsPermanent(fmt.Errorf("%w: set imagePullPolicy to false", err))
	}
	return codes.Classify(action, code, refusal.Actual, podgroup.RetryAfter(refusal.ResponseHeader), err)
}
