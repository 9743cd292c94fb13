package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// headerAuth authenticates callers by a header, and authorizes everything.
type headerAuth struct{ nodeutil.NodeRequestAttr }

func (headerAuth) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	name := r.Header.Get("X-Name")
	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
}

func (headerAuth) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// built is a node of the mock provider with the given arguments, that does not
// run, and its kubelet API.
func built(t *testing.T, args ...string) (*virtualNode, http.Handler) {
	t.Helper()
	noCluster(t)
	var o options
	command := newRootCommand(func(string) string { return "" })
	command.ResetFlags()
	o.addFlags(command.Flags(), func(string) string { return "" })
	if err := command.ParseFlags(append([]string{"--provider", "mock"}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	v := &virtualNode{options: &o, client: fake.NewSimpleClientset(), address: "192.0.2.1", auth: headerAuth{}}
	if _, err := v.build(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if v.closer != nil {
		t.Cleanup(func() { _ = v.closer.Close() })
	}
	return v, v.handler(v.mux)
}

// newIdentity returns an identity without a certificate yet.
func newIdentity(t *testing.T) *nodeutil.NodeIdentity {
	t.Helper()
	dir := t.TempDir()
	server := filepath.Join(dir, "bootstrap")
	if err := os.WriteFile(server, []byte("clusters: [{name: c, cluster: {server: https://192.0.2.1}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	identity, err := nodeutil.NewNodeIdentity(t.Context(), nodeutil.NodeIdentityConfig{NodeName: "vk", BootstrapKubeconfig: server, CertDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

func TestWhoMayReadWhat(t *testing.T) {
	identity := newIdentity(t)
	legacyregistry.Registerer().MustRegister(identity) // as runNode does
	defer legacyregistry.Registerer().Unregister(identity)
	v, kubeletAPI := built(t, "--debug-http")
	plain := metricsHandler(v.mux)
	_, withoutProfiles := built(t)
	const stranger, known = "", "me"
	for _, test := range []struct {
		name, path, caller string
		handler            http.Handler
		status             int
		says               string
	}{
		{"health is for everybody", "/healthz", stranger, kubeletAPI, 200, "ok"},
		{"readiness is", "/readyz", stranger, kubeletAPI, 500, "[-]node failed: reason withheld"},
		{"reasons are not", "/readyz/node", stranger, kubeletAPI, 401, "Unauthorized"},
		{"details are not", "/healthz?verbose", stranger, kubeletAPI, 401, "Unauthorized"},
		{"details for the known", "/healthz?verbose", known, kubeletAPI, 200, "[+]syncloop ok"},
		{"pods are not", "/pods", stranger, kubeletAPI, 401, "Unauthorized"},
		{"metrics are not", "/metrics", stranger, kubeletAPI, 401, "Unauthorized"},
		{"metrics for the known", "/metrics", known, kubeletAPI, 200, `kubelet_node_name{node="virtual-kubelet"} 1`},
		{"metrics of the process", "/metrics", known, kubeletAPI, 200, "# TYPE go_goroutines gauge"},
		{"metrics of the client certificate", "/metrics", known, kubeletAPI, 200, "kubelet_certificate_manager_client_ttl_seconds +Inf"},
		{"flags for the known", "/flagz", known, kubeletAPI, 200, "debug-http"},
		{"profiles for the known", "/debug/pprof/cmdline", known, kubeletAPI, 200, ""},
		{"profiles are not", "/debug/pprof/cmdline", stranger, kubeletAPI, 401, ""},
		{"profiles only if asked for", "/debug/pprof/cmdline", known, withoutProfiles, 404, ""},
		{"plain metrics are for everybody", "/metrics", stranger, plain, 200, `kubelet_node_name{node="virtual-kubelet"} 1`},
		{"plain resource metrics", "/metrics/resource", stranger, plain, 503, "has not begun with its pods yet"},
		{"plain cadvisor", "/metrics/cadvisor", stranger, plain, 503, "has not begun with its pods yet"},
		{"plain summary", "/stats/summary", stranger, plain, 503, "has not begun with its pods yet"},
		{"plain health", "/healthz", stranger, plain, 200, "ok"},
		{"plain readiness", "/readyz", stranger, plain, 500, "[-]node failed: reason withheld"},
		{"plain reasons are not", "/readyz/node", stranger, plain, 404, ""},
		{"nothing else is plain", "/pods", stranger, plain, 404, ""},
		{"nor are settings", "/configz", stranger, plain, 404, ""},
		{"nor what is behind dots", "/metrics/../pods", stranger, plain, 307, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, test.path, nil)
			if test.caller != "" {
				r.Header.Set("X-Name", test.caller)
			}
			w := httptest.NewRecorder()
			test.handler.ServeHTTP(w, r)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
				t.Errorf("%s: got %d %.300s, want %d with %q", test.path, w.Code, w.Body, test.status, test.says)
			}
		})
	}
}
