package nodeutil_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

func TestNodeRequestAttr(t *testing.T) {
	who := &user.DefaultInfo{Name: "me"}
	for _, test := range []struct{ method, path, verb, subresource string }{
		{"GET", "/pods", "get", "pods"},
		{"GET", "/pods/", "get", "pods"},
		{"HEAD", "/pods", "get", "pods"},
		{"GET", "/podsfoo", "get", "proxy"},
		{"GET", "/runningpods/", "get", "pods"},
		{"GET", "/healthz", "get", "healthz"},
		{"GET", "/healthz/syncloop", "get", "healthz"},
		{"GET", "/configz", "get", "configz"},
		{"GET", "/statusz", "get", "statusz"},
		{"GET", "/status", "get", "pods"},
		{"GET", "/flagz", "get", "configz"},
		{"GET", "/stats/summary", "get", "stats"},
		{"POST", "/stats/summary", "create", "stats"},
		{"GET", "/metrics", "get", "metrics"},
		{"GET", "/metrics/resource", "get", "metrics"},
		{"GET", "/metricsfoo", "get", "proxy"},
		{"GET", "/logs/", "get", "log"},
		{"POST", "/checkpoint/ns/p/c", "create", "checkpoint"},
		{"GET", "/containerLogs/ns/p/c", "get", "proxy"},
		{"POST", "/exec/ns/p/c", "create", "proxy"},
		{"GET", "/exec/ns/p/c", "create", "proxy"},
		{"HEAD", "/exec/ns/p/c", "create", "proxy"},
		{"GET", "/%65xec/ns/p/c", "create", "proxy"},
		{"GET", "/exec%2Fns/p/c", "create", "proxy"},
		{"GET", "/attach/ns/p/c", "create", "proxy"},
		{"GET", "/portForward/ns/p", "create", "proxy"},
		{"GET", "/run/ns/p/c", "create", "proxy"},
		{"GET", "/executive", "get", "proxy"},
		{"GET", "/%6Detrics", "get", "metrics"},
		{"PUT", "/debug/flags/v", "update", "proxy"},
		{"PATCH", "/x", "patch", "proxy"},
		{"DELETE", "/x", "delete", "proxy"},
		{"OPTIONS", "/x", "", "proxy"},
		{"GET", "/", "get", "proxy"},
	} {
		got := nodeutil.NodeRequestAttr{NodeName: "vk"}.GetRequestAttributes(who, httptest.NewRequest(test.method, test.path, nil))
		if got.GetVerb() != test.verb || got.GetSubresource() != test.subresource {
			t.Errorf("%s %s: got %q of %q, want %q of %q", test.method, test.path, got.GetVerb(), got.GetSubresource(), test.verb, test.subresource)
		}
		if got.GetUser() != who || got.GetResource() != "nodes" || got.GetName() != "vk" || got.GetAPIVersion() != "v1" || got.GetAPIGroup() != "" || !got.IsResourceRequest() {
			t.Errorf("%s %s: got %+v", test.method, test.path, got)
		}
	}
}

// ruled is an Auth by rule.
type ruled struct {
	nodeutil.NodeRequestAttr
	unknown      bool
	authnErr     error
	subresources map[string]bool // that may be used
	authzErr     error

	asked []string
}

func (a *ruled) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	if a.unknown || a.authnErr != nil {
		return nil, false, a.authnErr
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "me"}}, true, nil
}

func (a *ruled) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	a.asked = append(a.asked, attributes.GetSubresource())
	if a.subresources[attributes.GetSubresource()] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule", a.authzErr
}

func TestWithAuth(t *testing.T) {
	proxy := map[string]bool{"proxy": true}
	for name, test := range map[string]struct {
		auth  ruled
		path  string
		want  int
		body  string
		asked string
	}{
		"unknown":             {ruled{unknown: true}, "/pods", 401, "Unauthorized", "[]"},
		"cannot authenticate": {ruled{authnErr: errors.New("secret detail")}, "/pods", 401, "Unauthorized", "[]"},
		"allowed":             {ruled{subresources: map[string]bool{"pods": true}}, "/pods", 200, "hello me", "[pods]"},
		"pods by proxy":       {ruled{subresources: proxy}, "/pods", 200, "hello me", "[pods proxy]"},
		"healthz by proxy":    {ruled{subresources: proxy}, "/healthz", 200, "hello me", "[healthz proxy]"},
		"configz by proxy":    {ruled{subresources: proxy}, "/configz", 200, "hello me", "[configz proxy]"},
		"stats not by proxy":  {ruled{subresources: proxy}, "/stats/summary", 403, "Forbidden (user=me, verb=get, resource=nodes, subresource(s)=[stats])", "[stats]"},
		"metrics not":         {ruled{subresources: proxy}, "/metrics", 403, "Forbidden (user=me, verb=get, resource=nodes, subresource(s)=[metrics])", "[metrics]"},
		"logs not":            {ruled{subresources: proxy}, "/logs/", 403, "Forbidden", "[log]"},
		"flagz not":           {ruled{subresources: proxy}, "/flagz", 403, "Forbidden (user=me, verb=get, resource=nodes, subresource(s)=[configz])", "[configz]"},
		"flagz/ not":          {ruled{subresources: proxy}, "/flagz/", 403, "Forbidden", "[configz]"},
		"flagz by configz":    {ruled{subresources: map[string]bool{"configz": true}}, "/flagz", 200, "hello me", "[configz]"},
		"statusz not":         {ruled{subresources: proxy}, "/statusz", 403, "Forbidden", "[statusz]"},
		"neither":             {ruled{}, "/pods", 403, "Forbidden (user=me, verb=get, resource=nodes, subresource(s)=[pods proxy])", "[pods proxy]"},
		"exec by get":         {ruled{}, "/exec/ns/p/c", 403, "Forbidden (user=me, verb=create, resource=nodes, subresource(s)=[proxy])", "[proxy]"},
		"cannot authorize":    {ruled{authzErr: errors.New("secret detail")}, "/metrics", 500, "Authorization error", "[metrics]"},
	} {
		t.Run(name, func(t *testing.T) {
			reached := false
			h := nodeutil.WithAuth(&test.auth, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reached = true
				u, _ := request.UserFrom(r.Context())
				fmt.Fprint(w, "hello ", u.GetName())
			}))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", test.path, nil))
			if w.Code != test.want || !strings.Contains(w.Body.String(), test.body) || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, test.want, test.body)
			}
			if got := fmt.Sprint(test.auth.asked); got != test.asked {
				t.Errorf("asked for %s, want %s", got, test.asked)
			}
			if reached != (test.want == 200) {
				t.Errorf("the handler was reached: %v", reached)
			}
		})
	}
}

func TestNoAuth(t *testing.T) {
	w := httptest.NewRecorder()
	nodeutil.WithAuth(nodeutil.NoAuth(), answering("hello")).ServeHTTP(w, httptest.NewRequest("GET", "/exec/ns/p/c", nil))
	if w.Code != 200 || w.Body.String() != "hello" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestInstrumentAuthPassesThrough(t *testing.T) {
	cause := errors.New("cause")
	inner := &ruled{subresources: map[string]bool{"pods": true}, authzErr: cause}
	auth := nodeutil.InstrumentAuth(inner)
	if nodeutil.InstrumentAuth(auth) != auth {
		t.Error("instrumented twice")
	}
	r := httptest.NewRequest("GET", "/pods", nil)
	caller, ok, err := auth.AuthenticateRequest(r)
	if err != nil || !ok || caller.User.GetName() != "me" {
		t.Errorf("got %v, %v, %v", caller, ok, err)
	}
	if decision, _, err := auth.Authorize(t.Context(), auth.GetRequestAttributes(caller.User, r)); decision != authorizer.DecisionAllow || err != nil {
		t.Errorf("got %v, %v", decision, err)
	}
	r = httptest.NewRequest("GET", "/metrics", nil)
	if decision, reason, err := auth.Authorize(t.Context(), auth.GetRequestAttributes(caller.User, r)); decision != authorizer.DecisionNoOpinion || reason != "no rule" || err != cause {
		t.Errorf("got %v, %q, %v", decision, reason, err)
	}
	inner.authnErr = cause
	if _, ok, err := auth.AuthenticateRequest(r); ok || err != cause {
		t.Errorf("got %v, %v", ok, err)
	}
}

// reviewer is an API server that reviews tokens and access, for the webhook
// speaks to it over HTTP and not through the interface that fake clients have.
type reviewer struct {
	mu      sync.Mutex
	tokens  int
	access  []authorizationv1.SubjectAccessReviewSpec
	allowed map[string]string // user: subresource
}

func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		v.tokens++
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if name, ok := strings.CutPrefix(review.Spec.Token, "token-of-"); ok {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name}}
		}
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		v.access = append(v.access, review.Spec)
		review.Status.Allowed = v.allowed[review.Spec.User] == review.Spec.ResourceAttributes.Subresource
		_ = json.NewEncoder(w).Encode(review)
	default:
		http.NotFound(w, r)
	}
}

func (v *reviewer) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestWebhookAuth(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	v := &reviewer{allowed: map[string]string{"scraper": "metrics", "crew-member": "metrics", user.Anonymous: "metrics"}}
	provider, err := dynamiccertificates.NewStaticCAContent("test", ca.pem)
	if err != nil {
		t.Fatal(err)
	}
	auth, err := nodeutil.WebhookAuth(v.client(t), "vk", nil, func(cfg *nodeutil.WebhookAuthConfig) error {
		cfg.AuthnConfig.ClientCertificateCAContentProvider = provider
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// A whole node, since client certificates need its TLS configuration.
	address := serving(t, handledBy(nodeutil.WithAuth(nodeutil.InstrumentAuth(auth), answering("hello"))))
	ask := func(path, token string, config *tls.Config) int {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		req := httptest.NewRequest("GET", "https://"+address+path, nil)
		req.RequestURI = ""
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req.WithContext(testContext(t)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, test := range []struct {
		name, path, token string
		config            *tls.Config
		want              int
	}{
		{"token", "/metrics", "token-of-scraper", insecure(), 200},
		{"token again", "/metrics", "token-of-scraper", insecure(), 200},
		{"token for something else", "/exec/ns/p/c", "token-of-scraper", insecure(), 403},
		{"token of another", "/metrics", "token-of-stranger", insecure(), 403},
		{"bad token", "/metrics", "rubbish", insecure(), 401},
		{"anonymous", "/metrics", "", insecure(), 401},
		{"certificate", "/metrics", "", ca.client(t, "crew-member"), 200},
		{"certificate for something else", "/pods", "", ca.client(t, "crew-member"), 403},
		{"certificate of a stranger", "/metrics", "", stranger.client(t, "crew-member"), 401},
		{"certificate of a stranger, and a token", "/metrics", "token-of-scraper", stranger.client(t, "crew-member"), 200},
	} {
		if got := ask(test.path, test.token, test.config); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tokens != 3 {
		t.Errorf("tokens were reviewed %d times, want 3: answers are to be cached", v.tokens)
	}
	first := v.access[0]
	want := authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "metrics", Name: "vk"}
	if first.User != "scraper" || *first.ResourceAttributes != want {
		t.Errorf("asked for %+v %+v", first, first.ResourceAttributes)
	}
}

func TestWebhookAuthAnonymousByRequest(t *testing.T) {
	v := &reviewer{allowed: map[string]string{user.Anonymous: "metrics"}}
	auth, err := nodeutil.WebhookAuth(v.client(t), "vk", func(cfg *nodeutil.WebhookAuthConfig) error {
		cfg.AuthnConfig.Anonymous = &apiserver.AnonymousAuthConfig{Enabled: true}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/metrics": 200, "/pods": 403} {
		w := httptest.NewRecorder()
		nodeutil.WithAuth(auth, answering("hello")).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}

func TestWebhookAuthRefuses(t *testing.T) {
	if _, err := nodeutil.WebhookAuth(nil, "vk"); !errdefs.IsInvalidInput(err) {
		t.Errorf("without a client: %v", err)
	}
	cause := errors.New("cause")
	client := (&reviewer{}).client(t)
	if _, err := nodeutil.WebhookAuth(client, "vk", func(*nodeutil.WebhookAuthConfig) error { return cause }); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	_, err := nodeutil.WebhookAuth(client, "vk", func(cfg *nodeutil.WebhookAuthConfig) error {
		cfg.AuthnConfig.WebhookRetryBackoff = nil
		return nil
	})
	wantError(t, err, "cannot set up authentication")
	_, err = nodeutil.WebhookAuth(client, "vk", func(cfg *nodeutil.WebhookAuthConfig) error {
		cfg.AuthzConfig.WebhookRetryBackoff = nil
		return nil
	})
	wantError(t, err, "cannot set up authorization")
}
