package nodeutil_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// moody is a node whose pings are scripted.
type moody struct {
	node.NaiveNodeProvider
	ping atomic.Pointer[func(context.Context) error]
}

func (m *moody) Ping(ctx context.Context) error {
	if ping := m.ping.Load(); ping != nil {
		return (*ping)(ctx)
	}
	return nil
}

func TestHealthBeforeTheNodeRuns(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{})
	for path, want := range map[string]struct {
		code int
		says string
	}{
		"/healthz":                {200, "ok"},
		"/livez":                  {200, "ok"},
		"/healthz/ping":           {200, "ok"},
		"/healthz/log":            {200, "ok"},
		"/healthz/syncloop":       {200, "ok"},
		"/healthz?verbose":        {200, "[+]syncloop ok\nhealthz check passed"},
		"/healthz/pods":           {404, ""},
		"/readyz":                 {500, "[-]pods failed: reason withheld\n[-]node failed: reason withheld\n[-]lease failed: reason withheld\n[-]provider failed: reason withheld\nreadyz check failed"},
		"/readyz/pods":            {500, "waits for its caches"},
		"/readyz/node":            {500, "not registered yet"},
		"/readyz/lease":           {500, "no lease yet"},
		"/readyz/provider":        {500, "has not answered a ping yet"},
		"/readyz/ping":            {200, "ok"},
		"/livez?exclude=syncloop": {200, "ok"},
		"/readyz?exclude=pods&exclude=node&exclude=lease&exclude=provider": {200, "ok"},
	} {
		if w := ask(mux, http.MethodGet, path); w.Code != want.code || !strings.Contains(w.Body.String(), want.says) {
			t.Errorf("%s: got %d %q, want %d %q", path, w.Code, w.Body, want.code, want.says)
		}
	}
}

// A node that is well is ready; it ceases to be when the provider is ill, does
// not answer, or the API server is away, and is alive all the same.
func TestReadinessFollowsProviderAndLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		client := fake.NewSimpleClientset()
		fakeapi.React(&client.Fake, "create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			action.(clienttesting.CreateAction).GetObject().(*corev1.Node).UID = "n-1" // which leases are tied to
			return false, nil, nil
		})
		fakeapi.React(&client.Fake, "*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("connection refused")
		})
		mux := http.NewServeMux()
		mood := &moody{}
		n, err := nodeutil.NewNode("vk", func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return nodeutil.AsProvider(&tiny{}), mood, nil
		}, nodeutil.WithClient(client), openTo(mux)) // without a port, which is not of this bubble
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, n)
		if err := n.WaitReady(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		say := func(path string, code int, text string) {
			t.Helper()
			if w := ask(mux, http.MethodGet, path); w.Code != code || !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: got %d %q, want %d with %q", path, w.Code, w.Body, code, text)
			}
		}
		ping := func(f func(context.Context) error) { mood.ping.Store(&f) }

		time.Sleep(time.Minute)
		say("/readyz", 200, "ok")

		ping(func(context.Context) error { return errors.New("no credit") })
		time.Sleep(node.DefaultPingInterval + time.Second)
		say("/readyz", 500, "[-]provider failed: reason withheld")
		say("/readyz/provider", 500, "no credit")
		ping(func(context.Context) error { return nil })
		time.Sleep(node.DefaultPingInterval + time.Second)
		say("/readyz", 200, "ok")

		release := make(chan struct{})
		ping(func(context.Context) error { <-release; return nil })
		time.Sleep(45 * time.Second)
		say("/readyz/provider", 500, "last answered a ping")
		close(release)
		ping(func(context.Context) error { return nil })
		time.Sleep(node.DefaultPingInterval + time.Second)
		say("/readyz", 200, "ok")

		away.Store(true)
		time.Sleep(25 * time.Second)
		say("/readyz", 200, "ok")
		time.Sleep(30 * time.Second)
		say("/readyz/lease", 500, "has run out")
		say("/healthz", 200, "ok")
		say("/livez", 200, "ok")
		away.Store(false)
		time.Sleep(30 * time.Second)
		say("/readyz", 200, "ok")

		if err := stop(); err != nil {
			t.Error(err)
		}
		say("/healthz/syncloop", 500, "has ended")
		say("/livez", 500, "[-]syncloop failed")
	})
}

func TestReadinessWithoutLease(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{}, func(cfg *nodeutil.NodeConfig) error {
		cfg.DisableLease = true
		return nil
	})
	if w := ask(mux, http.MethodGet, "/readyz/lease"); w.Code != http.StatusOK {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestWithAuthExceptHealth(t *testing.T) {
	for _, test := range []struct {
		method, path string
		open         bool
	}{
		{"GET", "/healthz", true},
		{"GET", "/livez", true},
		{"GET", "/readyz", true},
		{"HEAD", "/readyz", true},
		{"POST", "/healthz", false},
		{"GET", "/healthz?verbose", false},
		{"GET", "/readyz?exclude=lease", false},
		{"GET", "/healthz/", false},
		{"GET", "/healthz/ping", false},
		{"GET", "/readyz/provider", false},
		{"GET", "/metrics", false},
		{"GET", "/pods", false},
		{"GET", "/", false},
	} {
		for _, auth := range []*ruled{{}, {unknown: true}} {
			w := ask(nodeutil.WithAuthExceptHealth(auth, answering("hello")), test.method, test.path)
			if got := w.Code == http.StatusOK; got != test.open {
				t.Errorf("%s %s: got %d", test.method, test.path, w.Code)
			}
		}
		allowed := &ruled{subresources: map[string]bool{"proxy": true, "healthz": true, "metrics": true}}
		if w := ask(nodeutil.WithAuthExceptHealth(allowed, answering("hello")), test.method, test.path); w.Code != http.StatusOK {
			t.Errorf("%s %s: got %d for one who is allowed", test.method, test.path, w.Code)
		}
	}
}

// As of a kubelet, a client with credentials needs nodes/healthz or nodes/proxy.
func TestHealthOfCallersWithCredentials(t *testing.T) {
	withToken := httptest.NewRequest(http.MethodGet, "/healthz", nil)
	withToken.Header.Set("Authorization", "Bearer token")
	withCertificate := httptest.NewRequest(http.MethodGet, "/readyz", nil)
	withCertificate.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	for _, request := range []*http.Request{withToken, withCertificate} {
		for subresource, want := range map[string]int{"healthz": 200, "proxy": 200, "configz": 403} {
			w := httptest.NewRecorder()
			auth := &ruled{subresources: map[string]bool{subresource: true}}
			nodeutil.WithAuthExceptHealth(auth, answering("hello")).ServeHTTP(w, request.Clone(t.Context()))
			if w.Code != want {
				t.Errorf("%s of one who may read nodes/%s: %d, want %d", request.URL.Path, subresource, w.Code, want)
			}
		}
	}
}
