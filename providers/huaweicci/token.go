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

// tokens gets tokens of the identity service (IAM), and keeps the last. It is safe for
// concurrent use.
type tokens struct {
	client  *http.Client
	url     string
	user    string
	request []byte

	mu      sync.Mutex
	token   string
	expires time.Time
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
	return &tokens{client: client, user: c.User, url: c.Endpoint + "/v3/auth/tokens?nocatalog=true", request: request}, nil
}

// get returns a token. It asks for another one if there is none, or refused is the last.
func (t *tokens) get(ctx context.Context, refused string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && t.token != refused && time.Until(t.expires) > tokenMargin {
		return t.token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout) // other requests wait
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(t.request))
	if err != nil {
		return "", fmt.Errorf("ask IAM for a token: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := t.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask IAM for a token: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("read the answer of IAM: %w", err)
	}
	token := response.Header.Get("X-Subject-Token")
	if response.StatusCode != http.StatusCreated || token == "" {
		return "", fmt.Errorf("IAM gives no token for user %s: %s: %s; check iam and CCI_IAM_PASSWORD", t.user, response.Status, shorten(data))
	}
	var answer struct {
		Token struct {
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"token"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return "", fmt.Errorf("read the token of IAM: %w", err)
	}
	t.token, t.expires = token, answer.Token.ExpiresAt
	return token, nil
}

// shorten returns the beginning of an answer that is no answer of the API.
func shorten(data []byte) string {
	const limit = 300
	if len(data) > limit {
		data = data[:limit]
	}
	return string(bytes.ToValidUTF8(bytes.TrimSpace(data), []byte("?")))
}
