package nomad

import (
	"io"
	"net/http"
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad/nomadtest"
)

func TestMain(m *testing.M) {
	// One of them waits on the real clock, which stands still in a bubble.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

// newTestBackend returns a backend with a fake of Nomad, connected in memory.
func newTestBackend(t *testing.T, server http.Handler, change ...func(*Config)) *backend {
	t.Helper()
	cfg := Config{Token: nomadtest.Token, ClusterName: "home"}
	for _, f := range change {
		f(&cfg)
	}
	b, err := newBackend(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.node = "vk"
	b.transport.DialContext, b.transport.Proxy = grouptest.Serve(t, server).DialContext, nil
	t.Cleanup(b.transport.CloseIdleConnections)
	return b
}

func TestSuite(t *testing.T) {
	servers := map[*grouptest.World]*nomadtest.Server{}
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			if servers[w] == nil {
				servers[w] = nomadtest.New(w)
			}
			b := newTestBackend(t, servers[w])
			b.transport.DialContext = grouptest.Serve(t, servers[w], w).DialContext
			return b, b.options()
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: nomadtest.ActionRegister, podgroup.ActionList: nomadtest.ActionJobs},
	}.Run(t)
}

// The suite checks what becomes of a node in another place. An agent, a region or a namespace is one.
func TestPlace(t *testing.T) {
	places := map[string]bool{}
	for _, change := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.Address = "https://another.test:4646" },
		func(c *Config) { c.Region = "another" },
		func(c *Config) { c.Namespace = "another" },
		func(c *Config) { c.Token = "another" }, // is none
	} {
		b := newTestBackend(t, nomadtest.New(grouptest.New(0)), change)
		places[b.options().Place] = true
	}
	if len(places) != 4 {
		t.Errorf("the places of four configurations are %v", places)
	}
}

// Another host does not get the token, nor what is sent.
func TestRedirectToAnotherHost(t *testing.T) {
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		b := newTestBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Host == "elsewhere" {
				t.Errorf("%s %s goes to another host, with token %q", r.Method, r.URL, r.Header.Get("X-Nomad-Token"))
			}
			http.Redirect(w, r, "http://elsewhere"+r.URL.Path, status)
		}))
		if _, err := b.List(t.Context(), nil, ""); !errdefs.IsUnavailable(err) {
			t.Errorf("the error of a list is %v", err)
		}
		if err := b.Delete(t.Context(), &podgroup.Unit{ID: "web"}, 0); !errdefs.IsUnavailable(err) {
			t.Errorf("the error of a deletion is %v", err)
		}
	}
}

// Only an answer of Nomad says that a job is gone, or is not valid, and not a page of a proxy.
func TestPagesOfProxies(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusBadGateway} {
		b := newTestBackend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "\n<html>no such page</html>")
		}))
		if err := b.Delete(t.Context(), &podgroup.Unit{ID: "web"}, 0); !errdefs.IsUnavailable(err) {
			t.Errorf("%d: the error of a deletion is %v, of class %s", status, err, errdefs.ClassOf(err))
		}
		if err := b.putVariables(t.Context(), podgroup.ActionCreate, "a", []*api.Variable{{Path: "a", Items: api.VariableItems{}}}); !errdefs.IsUnavailable(err) {
			t.Errorf("%d: the error of a creation is %v, of class %s", status, err, errdefs.ClassOf(err))
		}
	}
}
