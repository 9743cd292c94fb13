package huaweicci

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// tokenMargin is how long before its end a token is renewed. Tokens live 24 hours.
const tokenMargin = 30 * time.Minute

// tokenTimeout is the timeout of a request for a token.
const tokenTimeout = 30 * time.Second

// tokenDelay is how long no other token is asked for after that has failed, or after one was
// replaced because it was refused, in case the next is refused, too: IAM locks a user out
// whose password was wrong a few times.
const tokenDelay = 10 * time.Second

// tokens gets tokens of the identity service (IAM), and keeps the last. It is safe for
// concurrent use.
type tokens struct {
	client  *http.Client
	url     string
	user    string
	request []byte

	mu       sync.Mutex
	token    string
	expires  time.Time
	replaced time.Time // when the last was asked for because the one before was refused
	failed   error     // of the last request, at failedAt; nil if that brought a token
	failedAt time.Time
}

func newTokens(client *http.Client, c *IAM, project string) (*tokens, error) {
	type named struct {
		Name string `json:"name"`
	}
	body := map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{
			"user": map[string]any{"name": c.User, "password": string(c.Password), "domain": named{c.Domain}},
		}},
		"scope": map[string]any{"project": named{project}},
	}}
	request, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the request for a token: %w", err)
	}
	plain := *client
	plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // elsewhere nobody gets the password
	return &tokens{client: &plain, user: c.User, url: c.Endpoint + "/v3/auth/tokens?nocatalog=true", request: request}, nil
}

// get returns a token. It asks for another one if there is none, or refused is the last.
// Within tokenDelay of a failure it returns that error, and of a replacement the same token.
func (t *tokens) get(ctx context.Context, refused string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	isRefused := t.token != "" && t.token == refused
	switch {
	case t.token != "" && !isRefused && time.Until(t.expires) > tokenMargin, isRefused && time.Since(t.replaced) < tokenDelay:
		return t.token, nil
	case t.failed != nil && time.Since(t.failedAt) < tokenDelay:
		return "", t.failed
	}
	token, expires, err := t.ask(ctx)
	if err != nil {
		if ctx.Err() == nil { // otherwise the error is not about IAM
			t.failed, t.failedAt = err, time.Now()
		}
		return "", err
	}
	if isRefused {
		t.replaced = time.Now()
	}
	t.token, t.expires, t.failed = token, expires, nil
	return token, nil
}

// ask asks IAM for a token.
func (t *tokens) ask(ctx context.Context) (token string, expires time.Time, _ error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout) // other requests wait
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(t.request))
	if err != nil {
		return "", expires, fmt.Errorf("ask IAM for a token: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := t.client.Do(request)
	if err != nil {
		return "", expires, fmt.Errorf("ask IAM for a token: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", expires, fmt.Errorf("read the answer of IAM: %w", err)
	}
	token = response.Header.Get("X-Subject-Token")
	if response.StatusCode != http.StatusCreated || token == "" {
		return "", expires, fmt.Errorf("IAM gives no token for user %s: %s: %s; check iam and CCI_IAM_PASSWORD", t.user, response.Status, shorten(data))
	}
	var answer struct {
		Token struct {
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"token"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return "", expires, fmt.Errorf("read the token of IAM: %w", err)
	}
	return token, answer.Token.ExpiresAt, nil
}

// shorten returns the beginning of an answer that is no answer of the API.
func shorten(data []byte) string {
	const limit = 300
	if len(data) > limit {
		data = data[:limit]
	}
	return string(bytes.ToValidUTF8(bytes.TrimSpace(data), []byte("?")))
}
