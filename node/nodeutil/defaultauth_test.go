package nodeutil_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// asToken asks h for a path with a bearer token, or without one.
func asToken(ctx context.Context, h http.Handler, path, token string) int {
	r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// Where no authentication is configured for the kubelet API, the API server decides, and
// one warning names the rights which that needs.
func TestTheAPIServerDecidesByDefault(t *testing.T) {
	for name, opt := range map[string]func(*http.Handler) nodeutil.NodeOpt{
		"a mux": func(h *http.Handler) nodeutil.NodeOpt {
			mux := http.NewServeMux()
			*h = mux
			return nodeutil.AttachProviderRoutes(mux)
		},
		"no mux": func(h *http.Handler) nodeutil.NodeOpt {
			return func(cfg *nodeutil.NodeConfig) error {
				err := nodeutil.WithKubeletAPI()(cfg)
				*h = cfg.Handler
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := &reviewer{allowed: map[string]string{"scraper": "metrics"}}
			var h http.Handler
			if _, err := nodeutil.NewNode("vk", making(&whole{}), nodeutil.WithClient(v.client(t)), opt(&h)); err != nil {
				t.Fatal(err)
			}
			logged := &warnings{Logger: log.L}
			ctx := log.WithLogger(testContext(t), logged)
			for _, test := range []struct {
				path, token string
				want        int
			}{
				{"/metrics", "", http.StatusUnauthorized},
				{"/containerLogs/default/web/c", "", http.StatusUnauthorized},
				{"/exec/default/web/c", "rubbish", http.StatusUnauthorized},
				{"/metrics", "token-of-scraper", http.StatusOK},
				{"/exec/default/web/c", "token-of-scraper", http.StatusForbidden},
				{"/healthz", "", http.StatusOK},
			} {
				if got := asToken(ctx, h, test.path, test.token); got != test.want {
					t.Errorf("%s with token %q: got %d, want %d", test.path, test.token, got, test.want)
				}
			}
			for _, part := range []string{"create tokenreviews and subjectaccessreviews", "extension-apiserver-authentication-reader", "NoAuth()"} {
				if logged.count(part) != 1 {
					t.Errorf("%q is logged %d times, want once", part, logged.count(part))
				}
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.tokens != 2 || len(v.access) == 0 || v.access[0].ResourceAttributes.Name != "vk" {
				t.Errorf("%d tokens were reviewed, want 2, and the access %+v, want that to node vk", v.tokens, v.access)
			}
		})
	}
}

// The first request that is for the API server to decide has the cluster's client CA read.
func TestFirstRequestHasTheClientCARead(t *testing.T) {
	client := fake.NewSimpleClientset()
	start(t, client, making(&tiny{}), nodeutil.WithKubeletAPI())
	port := getNode(t, client, "vk").Status.DaemonEndpoints.KubeletEndpoint.Port
	if got := statusOf(t, net.JoinHostPort("127.0.0.1", fmt.Sprint(port)), "/metrics", "", insecure()); got == http.StatusOK {
		t.Error("a stranger is let in")
	}
	eventually(t, "the client CA is read", func() bool {
		return slices.ContainsFunc(client.Actions(), func(action clienttesting.Action) bool {
			get, ok := action.(clienttesting.GetAction)
			return ok && get.GetName() == "extension-apiserver-authentication"
		})
	})
}

func TestAuthOfNodeConfig(t *testing.T) {
	mux := http.NewServeMux()
	if _, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(fake.NewSimpleClientset()), openTo(mux)); err != nil {
		t.Fatal(err)
	}
	if got := asToken(t.Context(), mux, "/metrics", ""); got != http.StatusOK {
		t.Errorf("with NoAuth(): got %d", got)
	}
	around := http.NewServeMux()
	if _, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(fake.NewSimpleClientset()), nodeutil.AttachProviderRoutes(around)); err != nil {
		t.Fatal(err)
	}
	if got := asToken(t.Context(), nodeutil.WithAuth(nodeutil.NoAuth(), around), "/metrics", ""); got != http.StatusOK {
		t.Errorf("with NoAuth() around the mux: got %d", got)
	}
}

func TestWithKubeletAPI(t *testing.T) {
	open := func(cfg *nodeutil.NodeConfig) error {
		cfg.Auth = nodeutil.NoAuth()
		return nil
	}
	address := serving(t, nodeutil.WithKubeletAPI(), open)
	if status, body, err := get(t, "https://"+address+"/pods", insecure()); err != nil || status != http.StatusOK || !strings.Contains(body, "PodList") {
		t.Errorf("got %d %q, %v", status, body, err)
	}
	_, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(fake.NewSimpleClientset()), handledBy(answering("hello")), nodeutil.WithKubeletAPI())
	wantError(t, err, "WithKubeletAPI", "AttachProviderRoutes")
	if !errdefs.IsInvalidInput(err) {
		t.Errorf("%v is not of class InvalidInput", err)
	}
}

// A client CA demands certificates, but for clients with a token where the API server
// can be asked about it. What else the caller has on the mux is open to nobody either.
func TestClientCAAndTokens(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	path := write(t, "ca.crt", ca.pem)
	v := &reviewer{allowed: map[string]string{"scraper": "metrics", "crew-member": "metrics"}}
	webhook, err := nodeutil.WebhookAuth(v.client(t), "vk")
	if err != nil {
		t.Fatal(err)
	}
	const refused = 0 // by TLS
	type answers struct{ nobody, token, badToken, member, memberForMore, stranger, strangerWithToken, other int }
	checked := answers{401, 200, 401, 200, 403, refused, refused, 401}
	for name, test := range map[string]struct {
		around func(http.Handler) http.Handler
		auth   nodeutil.Auth
		want   answers
	}{
		"WebhookAuth around the mux": {
			around: func(h http.Handler) http.Handler {
				return api.InstrumentHandler(nodeutil.WithAuth(nodeutil.InstrumentAuth(webhook), h))
			}, want: checked},
		"WebhookAuth of the node": {auth: webhook, want: checked},
		"no WebhookAuth":          {want: answers{refused, refused, refused, 200, 200, refused, refused, refused}},
		"NoAuth":                  {auth: nodeutil.NoAuth(), want: answers{refused, refused, refused, 200, 200, refused, refused, refused}},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle("/other", answering("hello"))
			h := http.Handler(mux)
			if test.around != nil {
				h = test.around(mux)
			}
			address := serving(t, nodeutil.WithTLSConfig(nodeutil.WithCAFromPath(path)), handledBy(h), nodeutil.AttachProviderRoutes(mux),
				func(cfg *nodeutil.NodeConfig) error {
					cfg.Auth = test.auth
					return nil
				})
			ask := func(path, token string, config *tls.Config) int { return statusOf(t, address, path, token, config) }
			got := answers{
				nobody:            ask("/metrics", "", insecure()),
				token:             ask("/metrics", "token-of-scraper", insecure()),
				badToken:          ask("/metrics", "rubbish", insecure()),
				member:            ask("/metrics", "", ca.client(t, "crew-member")),
				memberForMore:     ask("/pods", "", ca.client(t, "crew-member")),
				stranger:          ask("/metrics", "", stranger.client(t, "crew-member")),
				strangerWithToken: ask("/metrics", "token-of-scraper", stranger.client(t, "crew-member")),
				other:             ask("/other", "", insecure()),
			}
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// statusOf is what a server answers; zero if there is no connection.
func statusOf(t *testing.T, address, path, token string, config *tls.Config) int {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// A fleet's Auth is that of its nodes which have none of their own, also where they bring
// a mux; where neither has one the API server is asked.
func TestAuthOfAFleet(t *testing.T) {
	for _, test := range []struct {
		name         string
		fleet, node  bool // have an Auth that asks the API server
		open         bool // the fleet's is NoAuth()
		mux          bool // the node brings a mux
		handler      bool // which is its Handler, too
		anonymous    int
		token, wrong int
	}{
		{name: "the fleet's", fleet: true, anonymous: 401, token: 200, wrong: 403},
		{name: "the fleet's, around the node's mux", fleet: true, mux: true, anonymous: 401, token: 200, wrong: 403},
		{name: "an open fleet's, around the node's mux", open: true, mux: true, anonymous: 200, token: 200, wrong: 200},
		{name: "the node's, before an open fleet's", open: true, node: true, anonymous: 401, token: 200, wrong: 403},
		{name: "the node's around its mux, before an open fleet's", open: true, node: true, mux: true, anonymous: 401, token: 200, wrong: 403},
		{name: "the fleet's, around the node's handler", fleet: true, mux: true, handler: true, anonymous: 401, token: 200, wrong: 403},
		{name: "the default, around the node's handler", mux: true, handler: true, anonymous: 401, token: 200, wrong: 403},
		{name: "the default, around the node's mux", mux: true, anonymous: 401, token: 200, wrong: 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := &reviewer{allowed: map[string]string{"scraper": "metrics"}}
			client := v.client(t)
			webhook, err := nodeutil.WebhookAuth(client, "all")
			if err != nil {
				t.Fatal(err)
			}
			cfg := nodeutil.FleetConfig{Client: client, PortPerNode: true}
			switch {
			case test.fleet:
				cfg.Auth = webhook
			case test.open:
				cfg.Auth = nodeutil.NoAuth()
			}
			fleet, err := nodeutil.NewFleet(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var h http.Handler = fleet
			opts := []nodeutil.NodeOpt{func(cfg *nodeutil.NodeConfig) error {
				if test.node {
					cfg.Auth = webhook
				}
				return nil
			}}
			if test.mux {
				mux := http.NewServeMux()
				h, opts = mux, append(opts, nodeutil.AttachProviderRoutes(mux))
				if test.handler {
					h, opts = fleet, append(opts, handledBy(mux))
				}
			}
			if _, err := fleet.Add("vk-0", making(&whole{}), opts...); err != nil {
				t.Fatal(err)
			}
			logged := &warnings{Logger: log.L}
			ask := func(path, token string) int {
				r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(log.WithLogger(testContext(t), logged))
				r.Host = "vk-0:10250"
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			if got := ask("/metrics", ""); got != test.anonymous {
				t.Errorf("without a token: got %d, want %d", got, test.anonymous)
			}
			if got := ask("/metrics", "token-of-scraper"); got != test.token {
				t.Errorf("with a token: got %d, want %d", got, test.token)
			}
			if got := ask("/configz", "token-of-scraper"); got != test.wrong {
				t.Errorf("for more than it may: got %d, want %d", got, test.wrong)
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if want := map[bool]string{true: "all", false: "vk-0"}[test.node]; test.wrong == 403 && (len(v.access) == 0 || v.access[0].ResourceAttributes.Name != want) {
				t.Errorf("access was asked for %+v, want node %s", v.access, want)
			}
			byDefault := !test.fleet && !test.open && !test.node
			if got := logged.count("No authentication is configured"); (got == 1) != byDefault {
				t.Errorf("the default is logged %d times", got)
			}
		})
	}
}
