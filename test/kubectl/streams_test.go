//go:build integration

package kubectl

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// transport is a way that streams can go from kubectl to the node.
type transport struct {
	name      string
	webSocket bool     // from kubectl to the API server; else SPDY
	features  []string // that the node declares
	// What reaches the node: the upgrade, and the WebSocket's protocol.
	exec, portForward string
	// counters are those of the API server that count such streams.
	counters []string
}

// The API server's counters of streams.
const (
	translated = `apiserver_stream_translator_requests_total{code="200"}` // exec and attach, from WebSocket to SPDY
	tunnelled  = `apiserver_stream_tunnel_requests_total{code="101"}`     // port-forward, the same
	passedOn   = `apiserver_websocket_streaming_requests_total{proxy_type="proxied_to_kubelet",subresource=`
)

var (
	// toNode are the counters of streams to a node that takes WebSockets.
	toNode      = []string{passedOn + `"exec"}`, passedOn + `"attach"}`, passedOn + `"portforward"}`}
	allCounters = append([]string{translated, tunnelled}, toNode...)
)

var webSockets = []string{"ExtendWebSocketsToKubelet"}

var transports = []transport{
	{
		name: "SPDY",
		exec: "SPDY/3.1", portForward: "SPDY/3.1",
	},
	{
		name: "WebSocketToAPIServer", webSocket: true,
		exec: "SPDY/3.1", portForward: "SPDY/3.1",
		counters: []string{translated, tunnelled},
	},
	{
		name: "WebSocketToNode", webSocket: true, features: webSockets,
		exec: "websocket v5.channel.k8s.io", portForward: "websocket SPDY/3.1+portforward.k8s.io",
		counters: toNode,
	},
	{
		name: "SPDYToNodeWithWebSockets", features: webSockets,
		exec: "SPDY/3.1", portForward: "SPDY/3.1",
		counters: toNode,
	},
}

// TestStreams runs the same on all ways that streams can go.
func TestStreams(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport.name, func(t *testing.T) {
			n := startNode(t, transport.features...)
			u := user{namespace: newNamespace(t), env: []string{
				"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + strconv.FormatBool(transport.webSocket),
				"KUBECTL_PORT_FORWARD_WEBSOCKETS=" + strconv.FormatBool(transport.webSocket),
			}}
			runPod(t, u.namespace, "pod", n.podSpec(attachable()...), nil)
			before := apiServerMetrics(t)
			t.Run("end of the pod", func(t *testing.T) { testEndOfPod(t, u, n) })
			t.Run("exec", func(t *testing.T) { testExec(t, u, n) })
			t.Run("attach", func(t *testing.T) { testAttach(t, u) })
			t.Run("debug", func(t *testing.T) { testDebug(t, u) })
			t.Run("cp", func(t *testing.T) { testCopy(t, u) })
			t.Run("cp directory", func(t *testing.T) { testCopyDirectory(t, u) })
			t.Run("port-forward", func(t *testing.T) { testPortForward(t, u, transport) })
			t.Run("transport", func(t *testing.T) { checkTransport(t, transport, n, before, apiServerMetrics(t)) })
		})
	}
}

// checkTransport sees that the streams went the way that the test is about.
func checkTransport(t *testing.T, transport transport, n *testNode, before, after map[string]float64) {
	t.Helper()
	seen := n.streams.get()
	for _, want := range []string{"exec " + transport.exec, "attach " + transport.exec, "portForward " + transport.portForward} {
		if seen[want] == 0 {
			t.Errorf("no %s has reached the node", want)
		}
		delete(seen, want)
	}
	if len(seen) > 0 {
		t.Errorf("other streams have reached the node: %v", seen)
	}
	for _, counter := range allCounters {
		if grown := after[counter] > before[counter]; grown != slices.Contains(transport.counters, counter) {
			t.Errorf("the API server's %s is %v, and was %v before", counter, after[counter], before[counter])
		}
	}
}

// apiServerMetrics returns the API server's counters of streams.
func apiServerMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counters := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		found := regexp.MustCompile(`^(apiserver_(?:stream|websocket)_\S+) (\S+)`).FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if counters[found[1]], err = strconv.ParseFloat(found[2], 64); err != nil {
			t.Fatal(err)
		}
	}
	return counters
}
