// Package ccigateway is Huawei Cloud CCI for tests: a gateway in front of a real API server
// that verifies signatures and tokens, has the paths and kinds of the service, and refuses
// what it refuses. Errors of the gateway and of the API server have their own forms.
package ccigateway

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// The identity that the gateway accepts.
const (
	AccessKey = "AKEXAMPLE"
	SecretKey = "SKexample/+="
	ProjectID = "0123456789abcdef"
	User      = "robot"
	Domain    = "account"
	Password  = "swordfish"
	Region    = "cn-test-1"
)

// Options are those of a gateway.
type Options struct {
	// V2 is CCI 2.0, otherwise CCI 1. CCI 2.0 ignores selectors and pages, which its
	// documentation does not have.
	V2 bool
	// Watches has them, which the documentation of CCI 2.0 does not mention.
	Watches bool
	// TokenLife is how long tokens are valid. Defaults to 24 hours.
	TokenLife time.Duration
}

// Gateway is a gateway. It is safe for concurrent use.
type Gateway struct {
	Options
	// URL is its address, CA its certificate authority.
	URL string
	CA  []byte

	backend *httputil.ReverseProxy
	now     func() time.Time

	mu       sync.Mutex
	tokens   map[string]time.Time
	issued   int
	networks map[string][]json.RawMessage // by namespace
	refused  []string
	requests map[string]int // see Count
}

// Start starts a gateway before an API server, until the test ends.
func Start(t testing.TB, backend *rest.Config, options Options) *Gateway {
	t.Helper()
	if options.TokenLife == 0 {
		options.TokenLife = 24 * time.Hour
	}
	g := &Gateway{Options: options, now: time.Now, tokens: map[string]time.Time{}, networks: map[string][]json.RawMessage{}, requests: map[string]int{}}
	config := rest.CopyConfig(backend)
	config.NextProtos = []string{"http/1.1"} // WebSockets
	base, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	g.backend = &httputil.ReverseProxy{
		Transport: base, FlushInterval: -1, ModifyResponse: g.modify,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = target.Host },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			answer(w, http.StatusBadGateway, "APIGW.0201", "Backend unavailable: "+err.Error())
		},
	}
	server := httptest.NewTLSServer(g)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	g.URL, g.CA = server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return g
}

// Refused returns what was refused by the gateway itself, with the reasons.
func (g *Gateway) Refused() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.refused...)
}

// Count returns how many successful requests had a method and a kind, and its subresource,
// such as "POST pods" or "GET pods/log".
func (g *Gateway) Count(what string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requests[what]
}

// Issued returns how many tokens IAM has issued.
func (g *Gateway) Issued() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.issued
}

// RevokeTokens makes all tokens invalid.
func (g *Gateway) RevokeTokens() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.tokens)
}

// Bind gives a namespace a network.
func (g *Gateway) Bind(namespace string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.networks[namespace] = append(g.networks[namespace], json.RawMessage(`{"kind": "Network", "metadata": {"name": "default"}}`))
}

// Networks returns the networks of a namespace.
func (g *Gateway) Networks(namespace string) []json.RawMessage {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.networks[namespace]
}

// failure is an answer of the gateway or, with a reason, one of an API server.
type failure struct {
	status               int
	code, reason, detail string
}

func (f *failure) Error() string {
	return fmt.Sprintf("%d %s%s %s", f.status, f.code, f.reason, f.detail)
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		answer(w, http.StatusBadRequest, "APIGW.0106", err.Error())
		return
	}
	if r.URL.Path == "/v3/auth/tokens" {
		g.issue(w, r, body)
		return
	}
	f := g.authenticate(r, body)
	if f == nil {
		body, f = g.route(w, r, body)
		if f == nil && body == nil {
			return // it is answered
		}
	}
	if f != nil {
		g.mu.Lock()
		g.refused = append(g.refused, r.Method+" "+r.URL.Path+": "+f.Error())
		g.mu.Unlock()
		if f.reason != "" {
			write(w, f.status, nil, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": f.reason, "message": f.detail, "code": f.status})
			return
		}
		answer(w, f.status, f.code, f.detail)
		return
	}
	for _, name := range []string{"Authorization", "X-Auth-Token", "X-Sdk-Date", "X-Project-Id", "X-Security-Token"} {
		r.Header.Del(name)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Length")
	g.backend.ServeHTTP(w, r)
}

// answer answers as the gateway before the service.
func answer(w http.ResponseWriter, status int, code, message string) {
	write(w, status, nil, map[string]string{"error_code": code, "error_msg": message, "request_id": "1"})
}

func write(w http.ResponseWriter, status int, header map[string]string, body any) {
	for name, value := range header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// issue is IAM.
func (g *Gateway) issue(w http.ResponseWriter, r *http.Request, body []byte) {
	var ask map[string]any
	err := json.Unmarshal(body, &ask)
	project := text(ask, "auth", "scope", "project", "name")
	if err != nil || r.Method != http.MethodPost || project != Region {
		answer(w, http.StatusBadRequest, "IAM.0011", "Request body is invalid.")
		return
	}
	password := []string{"auth", "identity", "password", "user"}
	if text(ask, append(password, "name")...) != User || text(ask, append(password, "password")...) != Password || text(ask, append(password, "domain", "name")...) != Domain {
		answer(w, http.StatusUnauthorized, "IAM.0006", "The username or password is wrong.")
		return
	}
	g.mu.Lock()
	g.issued++
	token := fmt.Sprintf("MIIFtoken%d", g.issued)
	g.tokens[token] = g.now().Add(g.TokenLife)
	expires := g.tokens[token]
	g.mu.Unlock()
	write(w, http.StatusCreated, map[string]string{"X-Subject-Token": token}, map[string]any{"token": map[string]string{"expires_at": expires.UTC().Format("2006-01-02T15:04:05.000000Z")}})
}

// text returns the text at a path in JSON.
func text(in map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		in, _ = in[name].(map[string]any)
	}
	found, _ := in[path[len(path)-1]].(string)
	return found
}
