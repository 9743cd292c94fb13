package interlink

import (
	"net/http"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/interlinktest"
)

// serve starts an interLink API server before a plugin, and returns what connects to it.
func serve(t *testing.T, s *interlinktest.Server, plugin http.Handler, count ...*grouptest.World) http.RoundTripper {
	t.Helper()
	s.Plugin = &http.Client{Transport: grouptest.Serve(t, plugin).Transport(t)}
	return grouptest.Serve(t, s, count...).Transport(t)
}

var actions = map[podgroup.Action]string{podgroup.ActionCreate: interlinktest.ActionCreate, podgroup.ActionList: interlinktest.ActionStatus}

// Plugins differ in how they say that they do not know a pod, and servers in how they
// send a creation.
func TestSuite(t *testing.T) {
	for name, kind := range map[string]struct {
		oneObject bool
		plugin    interlinktest.Plugin
	}{
		"left out":  {},
		"error":     {true, interlinktest.Plugin{Unknown: interlinktest.AsError, ListAnswer: true}},
		"stateless": {true, interlinktest.Plugin{Unknown: interlinktest.AsStateless}},
	} {
		t.Run(name, func(t *testing.T) {
			grouptest.Suite{
				New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
					server, plugin := interlinktest.Server{OneObject: kind.oneObject}, kind.plugin
					plugin.World = w
					b, o, err := newBackend(Config{InterlinkURL: "http://interlink", InterlinkPort: "3000", PodIP: "192.0.2.9"}, serve(t, &server, &plugin, w))
					if err != nil {
						t.Fatal(err)
					}
					return b, o
				},
				Actions: actions,
				Budget:  1_000_000, // the protocol has none
			}.Run(t)
		})
	}
}
