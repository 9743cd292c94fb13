package huaweicci

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"
)

// headerToken has the token of IAM.
const headerToken = "X-Auth-Token" //nolint:gosec // the name of a header

// transport authenticates requests, and translates between client-go and the service. It
// wraps the transports of plain requests, and of the handshakes of WebSocket and SPDY. It is
// safe for concurrent use.
type transport struct {
	base      http.RoundTripper
	host      string // of the service: no other one gets credentials
	api       API
	projectID string
	keys      keys
	tokens    *tokens // nil with keys
}

var _ http.RoundTripper = (*transport)(nil)

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if isWatchList(request) {
		return refuseWatchList(request), nil
	}
	body, err := readBody(request)
	if err != nil {
		return nil, err
	}
	if request.URL.Scheme != "https" || request.URL.Host != t.host {
		return nil, fmt.Errorf("the service redirects to %s://%s, which is not followed: it would get the credentials", request.URL.Scheme, request.URL.Host)
	}
	selector, err := selectorOf(request)
	if err != nil {
		return nil, err
	}
	sent, body, err := t.toService(request, body)
	if err != nil {
		return nil, err
	}
	response, err := t.send(sent, body)
	if err != nil {
		return nil, err
	}
	return t.fromService(sent, response, selector)
}

// readBody reads and closes the body of a request. Bodies are objects, so they are small.
func readBody(request *http.Request) ([]byte, error) {
	if request.Body == nil {
		return nil, nil
	}
	defer func() { _ = request.Body.Close() }()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, fmt.Errorf("read the body of a request: %w", err)
	}
	return body, nil
}

// send authenticates a request and sends it. If a token is refused, it is renewed once: it
// may have been revoked.
func (t *transport) send(request *http.Request, body []byte) (*http.Response, error) {
	if t.projectID != "" {
		request.Header.Set(headerProject, t.projectID)
	}
	if t.tokens == nil {
		t.keys.sign(request, body, time.Now())
		return t.base.RoundTrip(withBody(request, body))
	}
	token, err := t.tokens.get(request.Context(), "")
	if err != nil {
		return nil, err
	}
	request.Header.Set(headerToken, token)
	response, err := t.base.RoundTrip(withBody(request, body))
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	_ = response.Body.Close()
	if token, err = t.tokens.get(request.Context(), token); err != nil {
		return nil, err
	}
	request = request.Clone(request.Context())
	request.Header.Set(headerToken, token)
	return t.base.RoundTrip(withBody(request, body))
}

// withBody gives a request a body.
func withBody(request *http.Request, body []byte) *http.Request {
	if body == nil {
		return request
	}
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return request
}
