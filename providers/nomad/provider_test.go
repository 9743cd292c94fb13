package nomad

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

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
func newTestBackend(t *testing.T, api *nomadtest.Server, change ...func(*Config)) *backend {
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
	b.transport.DialContext, b.transport.Proxy = grouptest.Serve(t, api).DialContext, nil
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
