package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/turns"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// maxAnswer and maxRefusal limit answers that are read as a whole.
	maxAnswer  = 64 << 20
	maxRefusal = 1 << 20
	// tokenMargin is how long before its end a token is not used any more.
	tokenMargin = time.Minute
)

// statuses are the classes of HTTP statuses.
var statuses = podgroup.Codes{
	Denied: []string{"401", "403"}, Missing: []string{"404"}, Busy: []string{"409"}, Away: []string{"3??", "5??"}, Refused: []string{"400", "413", "422"},
}

// Client makes calls of a service. It is safe for concurrent use; its fields must not change any
// more then. Redirects are not followed: a request would lose its body.
type Client struct {
	// Service is the name of the service, for errors.
	Service string
	// URL is that of the API: the paths of calls are added to it.
	URL string
	// Transport connects to the service. Defaults to http.DefaultTransport.
	Transport http.RoundTripper
	// Token returns the bearer token of requests, such as clientcredentials.Config.Token of
	// OAuth, or nil for none. It is called again a minute before the token ends, and after an
	// answer with the status 401: then the call is made once more. Calls that need a token at the
	// same time share one. Without Token, requests have no token.
	Token func(context.Context) (*oauth2.Token, error)
	// Secrets are not shown in an error, such as those with which Token gets its own.
	Secrets []string
	// Codes give errors their class. Defaults to what HTTP statuses mean.
	Codes *podgroup.Codes
	// Code returns the code of a refusal, for Codes; empty if the answer is not the service's.
	// Defaults to the status, such as 404, and to none for answers that are not JSON: they come
	// from a proxy before the service.
	Code func(action podgroup.Action, status int, body []byte) string

	turns turns.Turns // to call Token
	mu    sync.Mutex
	token *oauth2.Token
}

// Call is a call of an API.
type Call struct {
	// Action is what the call is for: it decides about the class of an error.
	Action podgroup.Action
	Method string
	// Path is that below the client's URL, with the query.
	Path string
	// Header has further headers.
	Header map[string]string
	// In is the body: []byte as it is, all else in JSON, nil for none.
	In any
	// Secrets are not shown in an error, even if the service repeats them.
	Secrets []string
}

func (c *Call) body() ([]byte, error) {
	switch in := c.In.(type) {
	case nil:
		return nil, nil
	case []byte:
		return in, nil
	default:
		return json.Marshal(in)
	}
}

// Do makes a call, and decodes the answer from JSON into out. It drops the answer if out is nil,
// and keeps it as it is in a *[]byte. One that cannot be read is an error of class Unavailable.
func (c *Client) Do(ctx context.Context, call Call, out any) error {
	body, err := c.Open(ctx, call)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := decode(body, out); err != nil {
		return errdefs.AsUnavailable(fmt.Errorf("the answer of %s to %s cannot be read: %w", c.Service, call.Action, err))
	}
	return nil
}

// decode reads an answer to its end: half of one would be taken for the whole.
func decode(body io.Reader, out any) error {
	limited := &io.LimitedReader{R: body, N: maxAnswer + 1}
	var text []byte
	var err error
	if out == nil {
		_, err = io.Copy(io.Discard, limited)
	} else {
		text, err = io.ReadAll(limited)
	}
	if err == nil && limited.N <= 0 {
		err = fmt.Errorf("it is longer than %d MiB", maxAnswer>>20)
	}
	if err != nil || out == nil {
		return err
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = text
		return nil
	}
	return json.Unmarshal(text, out)
}

// Open makes a call, and returns the body of the answer, such as a log that is followed. The
// caller closes it.
func (c *Client) Open(ctx context.Context, call Call) (io.ReadCloser, error) {
	body, err := call.body()
	if err != nil {
		return nil, err
	}
	token, isNew, err := c.bearer(ctx)
	if err != nil {
		return nil, c.withoutToken(&call, err)
	}
	response, err := c.send(ctx, &call, body, token)
	if err == nil && response.StatusCode == http.StatusUnauthorized && token != nil {
		c.drop(token) // it has ended before its time
		if !isNew {
			response, token, err = c.sendAgain(ctx, &call, body, response, token)
		}
	}
	if err != nil {
		return nil, c.unanswered(&call, err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what there is
	return nil, c.refused(&call, cmp.Or(c.Codes, &statuses), response, text, token)
}

func (c *Client) send(ctx context.Context, call *Call, body []byte, token *oauth2.Token) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, call.Method, c.URL+call.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	for key, value := range call.Header {
		request.Header.Set(key, value)
	}
	if token != nil && token.AccessToken != "" {
		request.Header.Set("Authorization", "Bearer "+token.AccessToken)
	}
	return c.client().Do(request)
}

// sendAgain makes a call again that was refused with a token, with another one. Without another
// one the refusal is the answer.
func (c *Client) sendAgain(ctx context.Context, call *Call, body []byte, refusal *http.Response, token *oauth2.Token) (*http.Response, *oauth2.Token, error) {
	renewed, _, err := c.bearer(ctx)
	if err != nil || renewed == nil {
		return refusal, token, nil
	}
	_ = refusal.Body.Close()
	response, err := c.send(ctx, call, body, renewed)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		c.drop(renewed)
	}
	return response, renewed, err
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.client().CloseIdleConnections()
	return nil
}

func (c *Client) client() *http.Client {
	return &http.Client{
		Transport:     c.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bearer returns the token of a request, nil for none, and whether it was got for it. Of concurrent
// calls one gets it for all.
func (c *Client) bearer(ctx context.Context) (token *oauth2.Token, isNew bool, err error) {
	if c.Token == nil {
		return nil, false, nil
	}
	if token := c.valid(); token != nil {
		return token, false, nil
	}
	done, err := c.turns.Take(ctx, "token")
	if err != nil {
		return nil, false, err
	}
	defer done()
	if token := c.valid(); token != nil {
		return token, false, nil
	}
	token, err = c.Token(context.WithValue(ctx, oauth2.HTTPClient, c.client()))
	if err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
	return token, true, nil
}

// valid returns the token that was got before, unless it ends soon.
func (c *Client) valid() *oauth2.Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != nil && !c.token.Expiry.IsZero() && time.Until(c.token.Expiry) < tokenMargin {
		return nil
	}
	return c.token
}

// drop has no call use a token any more, which may be another one than the last.
func (c *Client) drop(token *oauth2.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == token {
		c.token = nil
	}
}

// unanswered returns the error of a call that nobody has answered. Its address is shown without the
// query, which may have what a command was to be run with.
func (c *Client) unanswered(call *Call, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		address := "an address that is not valid"
		if u, err := url.Parse(failed.URL); err == nil {
			u.RawQuery = ""
			address = u.Redacted()
		}
		err = fmt.Errorf("%s %s: %w", failed.Op, address, failed.Err)
	}
	return statuses.Classify(call.Action, "", 0, 0, fmt.Errorf("cannot ask %s to %s: %w", c.Service, call.Action, err))
}

// withoutToken returns the error of a call for which there is no token. That it is refused says
// nothing of what the call is about.
func (c *Client) withoutToken(call *Call, err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return c.refused(call, &podgroup.Codes{Denied: []string{"2??", "4??"}}, refused.Response, refused.Body, nil)
	}
	return c.unanswered(call, err)
}

// refusal is the error of an answer that refuses a call.
type refusal struct {
	status int
	error
}

// Unwrap returns the error with its class.
func (r *refusal) Unwrap() error { return r.error }

func (c *Client) refused(call *Call, codes *podgroup.Codes, answer *http.Response, body []byte, token *oauth2.Token) error {
	code := ""
	switch {
	case c.Code != nil:
		code = c.Code(call.Action, answer.StatusCode, body)
	case json.Valid(body):
		code = strconv.Itoa(answer.StatusCode)
	}
	secrets := slices.Concat(c.Secrets, call.Secrets)
	if token != nil {
		secrets = append(secrets, token.AccessToken)
	}
	err := fmt.Errorf("%s refuses to %s: %s: %s", c.Service, call.Action, answer.Status, redact(string(body), secrets))
	return &refusal{answer.StatusCode, codes.Classify(call.Action, code, answer.StatusCode, podgroup.RetryAfter(answer.Header), err)}
}

// StatusOf returns the HTTP status of the answer that refused a call; 0 if err is something else.
func StatusOf(err error) int {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.status
	}
	return 0
}
