package nomad

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
)

// newClient returns a client of the API, and the transport that it uses. It makes no call.
func newClient(c *Config) (*api.Client, *http.Transport, error) {
	address, socket := c.Address, ""
	if u, err := url.Parse(address); err == nil && u.Scheme == "unix" {
		address, socket = "http://127.0.0.1", u.Path
	}
	transport := rest.NewTransport(socket)
	httpClient := &http.Client{Transport: transport, CheckRedirect: rest.SameHost} // its token is in a header of its own
	err := api.ConfigureTLS(httpClient, &api.TLSConfig{
		CACert: c.CACert, CAPath: c.CAPath, ClientCert: c.ClientCert, ClientKey: c.ClientKey, TLSServerName: c.TLSServerName, Insecure: c.SkipVerify,
	})
	if err != nil {
		return nil, nil, errdefs.InvalidInputf("nomad config: certificates: %w", err)
	}
	client, err := api.NewClient(&api.Config{Address: address, Region: c.Region, Namespace: c.Namespace, SecretID: c.Token.Reveal(), HttpClient: httpClient})
	if err != nil {
		return nil, nil, errdefs.InvalidInputf("nomad config: %w", err)
	}
	return client, transport, nil
}

func query(ctx context.Context) *api.QueryOptions { return (&api.QueryOptions{}).WithContext(ctx) }

func write(ctx context.Context) *api.WriteOptions { return (&api.WriteOptions{}).WithContext(ctx) }

// The codes of errors. Nomad has HTTP statuses and texts; what is no status here is a text.
const (
	codeExists   = "exists"   // a job whose index is not what the registration expects
	codeRejected = "rejected" // a job that is not valid
	codeNoAlloc  = "no allocation"
)

var codes = podgroup.Codes{
	Throttled: []string{"429"},
	Denied:    []string{"401", "403"},
	Busy:      []string{codeExists, "409"},
	Missing:   []string{"404", codeNoAlloc},
	Away:      []string{"3??", "5??"},
	Refused:   []string{codeRejected, "400", "413"},
}

// maxErrorText is how much of Nomad's text an error has.
const maxErrorText = 500

// classify returns err, of a call of an action, with its class. The text has no secrets:
// those are in headers and bodies of requests, which neither Nomad nor the client repeats.
func classify(action podgroup.Action, err error) error {
	if err == nil {
		return nil
	}
	status, body := 0, ""
	if answer, ok := errors.AsType[api.UnexpectedResponseError](err); ok {
		status, body = answer.StatusCode(), strings.Join(strings.Fields(answer.Body()), " ")
		err = fmt.Errorf("the server of Nomad answers %d: %s", status, body[:min(len(body), maxErrorText)])
	}
	if status == 0 { // nobody has answered
		return codes.Classify(action, "", 0, 0, err)
	}
	code := strconv.Itoa(status)
	if strings.HasPrefix(body, "<") { // a page of something before Nomad, whose own answers are text
		code = ""
	}
	switch has := func(text string) bool { return strings.Contains(body, text) }; {
	case has(api.RegisterEnforceIndexErrPrefix):
		code, status = codeExists, http.StatusConflict
	case has("No path to node"): // its client is not connected at the moment; what it has is not gone
		code, status = "503", http.StatusServiceUnavailable
	case has(api.PermissionDeniedErrorContent):
		code, status = "403", http.StatusForbidden
	case action == podgroup.ActionCreate && status == http.StatusInternalServerError && (has("error occurred:") || has("errors occurred:")):
		code, status = codeRejected, http.StatusBadRequest
	case action != podgroup.ActionCreate && (has("Unknown allocation") || has("unknown allocation")):
		code, status = codeNoAlloc, http.StatusNotFound
	}
	return codes.Classify(action, code, status, 0, err)
}

// isStatus reports whether Nomad answered with a status.
func isStatus(err error, status int) bool {
	answer, ok := errors.AsType[api.UnexpectedResponseError](err)
	return ok && answer.StatusCode() == status
}

// exists reports whether a registration found a job with the ID.
func exists(err error) bool {
	answer, ok := errors.AsType[api.UnexpectedResponseError](err)
	return ok && strings.Contains(answer.Body(), api.RegisterEnforceIndexErrPrefix)
}
