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
	"strconv"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
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
	Denied: []string{"401", "403"}, Missing: []string{"404"}, Busy: []string{"409"}, Away: []string{"5??"}, Refused: []string{"400", "413", "422"},
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
	// answer with the status 401. Without Token, requests have no token.
	Token func(context.Context) (*oauth2.Token, error)
	// Codes give errors their class. Defaults to what HTTP statuses mean.
	Codes *podgroup.Codes
	// Code returns the code of a refusal, for Codes; empty if the answer is not the service's.
	// Defaults to the status, such as 404, and to none for answers that are not JSON: they come
	// from a proxy before the service.
	Code func(action podgroup.Action, status int, body []byte) string

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
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if raw, ok := out.(*[]byte); ok {
		*raw = text
	} else if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return errdefs.AsUnavailable(fmt.Errorf("the answer of %s to %s cannot be read: %w", c.Service, call.Action, err))
	}
	return nil
}

// Open makes a call, and returns the body of the answer, such as a log that is followed. The
// caller closes it.
func (c *Client) Open(ctx context.Context, call Call) (io.ReadCloser, error) {
	body, err := call.body()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, call.Method, c.URL+call.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	for key, value := range call.Header {
		request.Header.Set(key, value)
	}
	token, err := c.bearer(ctx)
	if err != nil {
		return nil, c.withoutToken(&call, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.client().Do(request)
	if err != nil {
		return nil, c.unanswered(&call, err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return response.Body, nil
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized { // the token has ended before its time
		c.keep(nil)
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what there is
	return nil, c.refused(&call, cmp.Or(c.Codes, &statuses), response, text, token)
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

// bearer returns the token of a request; empty for none. Concurrent calls may each request one.
func (c *Client) bearer(ctx context.Context) (string, error) {
	if c.Token == nil {
		return "", nil
	}
	c.mu.Lock()
	token := c.token
	c.mu.Unlock()
	if token == nil || !token.Expiry.IsZero() && time.Until(token.Expiry) < tokenMargin {
		var err error
		if token, err = c.Token(context.WithValue(ctx, oauth2.HTTPClient, c.client())); err != nil || token == nil {
			return "", err
		}
		c.keep(token)
	}
	return token.AccessToken, nil
}

func (c *Client) keep(token *oauth2.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
}

// unanswered returns the error of a call that nobody has answered.
func (c *Client) unanswered(call *Call, err error) error {
	return statuses.Classify(call.Action, "", 0, 0, fmt.Errorf("cannot ask %s to %s: %w", c.Service, call.Action, err))
}

// withoutToken returns the error of a call for which there is no token. That it is refused says
// nothing of what the call is about.
func (c *Client) withoutToken(call *Call, err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return c.refused(call, &podgroup.Codes{Denied: []string{"2??", "4??"}}, refused.Response, refused.Body, "")
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

func (c *Client) refused(call *Call, codes *podgroup.Codes, answer *http.Response, body []byte, token string) error {
	code := ""
	switch {
	case c.Code != nil:
		code = c.Code(call.Action, answer.StatusCode, body)
	case json.Valid(body):
		code = strconv.Itoa(answer.StatusCode)
	}
	err := fmt.Errorf("%s refuses to %s: %s: %s", c.Service, call.Action, answer.Status, redact(string(body), token, call.Secrets))
	return &refusal{answer.StatusCode, codes.Classify(call.Action, code, answer.StatusCode, podgroup.RetryAfter(answer.Header), err)}
}

// StatusOf returns the HTTP status of the answer that refused a call; 0 if err is something else.
func StatusOf(err error) int {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.status
	}
	return 0
}
