package interlink

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

const (
	// headerTimeout is how long the server may take to begin an answer: a creation waits
	// for the batch system.
	headerTimeout = 2 * time.Minute
	// maxAnswer limits answers that are read as a whole.
	maxAnswer = 64 << 20
	// maxErrorText limits what of an error's text is shown.
	maxErrorText = 300
)

// client makes requests to the interLink API server.
type client struct {
	base  *url.URL
	token func() (string, error)
	http  *http.Client
}

// newClient returns a client. transport, if it is not nil, connects to the server instead
// of what the configuration says.
func newClient(c *Config, transport http.RoundTripper) (*client, error) {
	base, socket, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	if transport == nil {
		if transport, err = newTransport(c, socket); err != nil {
			return nil, err
		}
	}
	return &client{base: base, token: c.token, http: &http.Client{
		Transport: transport,
		// A redirected request would lose its body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func newTransport(c *Config, socket string) (*http.Transport, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: headerTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 10,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.HTTP.Insecure}, // #nosec G402 -- the configuration asks for it
	}
	if socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	ca := c.HTTP.CACert
	if c.TLS.Enabled {
		ca = cmp.Or(c.TLS.CACertFile, ca)
		if c.TLS.CertFile != "" {
			if _, err := c.TLS.clientCertificate(nil); err != nil { // now, rather than at each request
				return nil, err
			}
			t.TLSClientConfig.GetClientCertificate = c.TLS.clientCertificate
		}
	}
	if ca != "" {
		pool, err := readCA(ca)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return t, nil
}

// call is a request.
type call struct {
	action       podgroup.Action
	method, path string
	body         any      // bytes as they are, else in JSON
	secrets      []string // that are not to be in an error, however the server words it
}

func (r *call) encode() ([]byte, error) {
	switch body := r.body.(type) {
	case nil:
		return nil, nil
	case []byte:
		return body, nil
	default:
		return json.Marshal(body)
	}
}

// answerError is an answer of the server that refuses a request.
type answerError struct {
	status int
	error
}

// Unwrap returns the error with its class.
func (e *answerError) Unwrap() error { return e.error }

// statusOf returns the HTTP status of an answer that refuses a request; 0 if err is
// something else.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*answerError](err); ok {
		return answer.status
	}
	return 0
}

// codes are HTTP statuses. The server relays those of the plugin, and gives 500 for most of
// what goes wrong. That a path does not exist is nobody's answer to a creation.
var codes = podgroup.Codes{
	Throttled: []string{"429"}, Denied: []string{"401", "403"}, Busy: []string{"409"}, Missing: []string{"404"},
	Away: []string{"5??"}, Refused: []string{"400", "413", "422"},
}

// open makes a request, and returns the body of a good answer.
func (c *client) open(ctx context.Context, r call) (io.ReadCloser, error) {
	fail := func(err error) error {
		return codes.Classify(r.action, "", 0, 0, fmt.Errorf("cannot ask interLink to %s: %w", r.action, err))
	}
	body, err := r.encode()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, r.method, c.base.JoinPath(r.path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	token, err := c.token()
	if err != nil {
		return nil, fail(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(wire.SessionHeader, string(r.action)+"#"+rand.Text()[:8])
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fail(err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 16<<10)) // what there is
	err = fmt.Errorf("interLink refuses to %s: %s: %s", r.action, response.Status, redact(string(text), append(r.secrets, token)))
	code := strconv.Itoa(response.StatusCode)
	if r.action == podgroup.ActionCreate && response.StatusCode == http.StatusNotFound {
		code = "no such path"
	}
	return nil, &answerError{response.StatusCode, codes.Classify(r.action, code, response.StatusCode, podgroup.RetryAfter(response.Header), err)}
}

// do makes a request, and decodes the answer into out, unless that is nil.
func (c *client) do(ctx context.Context, r call, out any) error {
	body, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return errdefs.AsUnavailable(fmt.Errorf("the answer of interLink to %s cannot be read: %w", r.action, err))
	}
	return nil
}

// redact makes one short line of a text, without what is secret: plugins show what they have
// got, also in the forms in which it was sent, and the server escapes what they show.
func redact(text string, secrets []string) string {
	text = html.UnescapeString(text)
	for _, secret := range secrets {
		if len(secret) < 4 { // shorter ones would make the text unreadable, and are guessed anyway
			continue
		}
		quoted, _ := json.Marshal(secret) // a string
		for _, form := range []string{secret, string(quoted[1 : len(quoted)-1]), base64.StdEncoding.EncodeToString([]byte(secret))} {
			text = strings.ReplaceAll(text, form, "[secret]")
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return text
}
