package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// limited is a provider whose sessions last until their clients go, with limits.
func limited(limits api.StreamLimits) api.PodHandlerConfig {
	config := idle(make(chan struct{}, 1000))
	config.StreamLimiter = api.NewStreamLimiter(limits)
	return config
}

// Each limit of sessions is answered with 429 before anything else, and what ends
// makes place again.
func TestSessionsAreLimited(t *testing.T) {
	const logs, exec, attach, forward = "GET /containerLogs/%s/%s/c?follow=true", "GET /exec/%s/%s/c?command=x&output=1",
		"GET /attach/%s/%s/c?output=1", "GET /portForward/%s/%s?port=80"
	for name, c := range map[string]struct {
		quota   api.Quota
		fill    []string // requests that are let in
		refused []string
		free    []string // requests of others, which are let in all the same
		says    string
	}{
		"of a pod": {api.Quota{PerPod: 2}, []string{fmt.Sprintf(logs, "ns", "p"), fmt.Sprintf(exec, "ns", "p")},
			[]string{fmt.Sprintf(attach, "ns", "p"), fmt.Sprintf(forward, "ns", "p"), fmt.Sprintf(logs, "ns", "p")},
			[]string{fmt.Sprintf(logs, "ns", "q"), fmt.Sprintf(logs, "other", "p")}, "of pod ns/p, the limit is 2"},
		"of a namespace": {api.Quota{PerNamespace: 2}, []string{fmt.Sprintf(attach, "ns", "p"), fmt.Sprintf(forward, "ns", "q")},
			[]string{fmt.Sprintf(logs, "ns", "r")},
			[]string{fmt.Sprintf(logs, "other", "p"), fmt.Sprintf(logs, "ns", "p") + "&user=another"}, "of one user in namespace ns"},
		"of a user": {api.Quota{PerUser: 2}, []string{fmt.Sprintf(logs, "ns", "p"), fmt.Sprintf(logs, "other", "p")},
			[]string{fmt.Sprintf(logs, "third", "p")}, []string{fmt.Sprintf(logs, "ns", "p") + "&user=another"}, "of one user, the limit"},
		"in all": {api.Quota{Total: 2}, []string{fmt.Sprintf(logs, "ns", "p"), fmt.Sprintf(logs, "other", "p") + "&user=another"},
			[]string{fmt.Sprintf(logs, "third", "p")}, nil, "of this node, the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			server := servePods(t, limited(api.StreamLimits{Sessions: c.quota, User: func(r *http.Request) string { return r.URL.Query().Get("user") }}))
			open := func(request string) (*http.Response, net.Conn) {
				headers := ""
				if !strings.Contains(request, "containerLogs") {
					headers = webSocketUpgrade
				}
				return ask(t, server, request, headers)
			}
			var first net.Conn
			for _, request := range append(c.fill, c.free...) {
				resp, conn := open(request)
				if resp.StatusCode >= 300 {
					t.Fatalf("%s: %s", request, resp.Status)
				}
				if first == nil {
					first = conn
				}
			}
			for _, request := range c.refused {
				resp, conn := open(request)
				text, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "2" || !strings.Contains(string(text), c.says) {
					t.Errorf("%s: %s %v %q, want 429 with %q", request, resp.Status, resp.Header, text, c.says)
				}
				conn.Close()
			}
			first.Close()
			eventually(t, "a place for another when the first has gone", func() bool {
				resp, conn := open(c.refused[0])
				if resp.StatusCode >= 300 {
					conn.Close()
				}
				return resp.StatusCode < 300
			})
		})
	}
}

// eventually waits until f returns true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// A handler on a mux of one's own has the default limits, unless it is given others.
func TestSingleHandlersAreLimited(t *testing.T) {
	wait := idle(make(chan struct{}, 1000))
	mux := http.NewServeMux()
	shared := api.NewStreamLimiter(api.StreamLimits{Sessions: api.Quota{PerPod: 1}})
	mux.Handle("/default/{namespace}/{pod}/{container}", api.HandleContainerLogs(wait.GetContainerLogs))
	mux.Handle("/logs/{namespace}/{pod}/{container}", api.HandleContainerLogStreams(wait.GetContainerLogs, nil, api.WithLogsLimiter(shared)))
	mux.Handle("/exec/{namespace}/{pod}/{container}", api.HandleContainerExec(wait.RunInContainer, api.WithExecLimiter(shared)))
	mux.Handle("/forward/{namespace}/{pod}", api.HandlePortForward(wait.PortForward, api.WithPortForwardLimiter(shared)))
	server := serve(t, mux)
	status := func(request, headers string) int {
		resp, _ := ask(t, server, request, headers)
		return resp.StatusCode
	}
	if got := status("GET /logs/ns/p/c?follow=true", ""); got != 200 {
		t.Fatal(got)
	}
	for _, request := range []string{"GET /exec/ns/p/c?command=x&output=1", "GET /forward/ns/p?port=1"} {
		if got := status(request, webSocketUpgrade); got != http.StatusTooManyRequests {
			t.Errorf("%s: %d", request, got)
		}
	}
	for i := range 101 {
		if got, want := status("GET /default/ns/p/c?follow=true", ""), 200; got != want && !(i == 100 && got == 429) {
			t.Fatalf("log %d: %d", i, got)
		} else if i == 100 && got != 429 {
			t.Errorf("101 logs of a pod are read at once")
		}
	}
}

// A port-forward beyond its limit refuses a connection, and keeps the others; pairs
// of which one stream is missing count as well.
func TestForwardedConnectionsAreLimited(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		config := func(limits api.StreamLimits) func(*api.PodHandlerConfig) {
			return func(c *api.PodHandlerConfig) { c.StreamLimiter = api.NewStreamLimiter(limits) }
		}
		for name, limits := range map[string]api.StreamLimits{
			"of a session": {ConnectionsPerSession: 2},
			"of a pod":     {Connections: api.Quota{PerPod: 2}},
		} {
			t.Run(name, func(t *testing.T) {
				conn := dialForward(t, how, echoPort, config(limits))
				errs := openForward(t, conn, "error", "80", "0")
				data := openForward(t, conn, "data", "80", "0")
				echo := func() {
					t.Helper()
					got := make([]byte, 1)
					if _, err := data.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(data, got); err != nil || got[0] != 'x' {
						t.Fatalf("the connection does not go on: %q, %v", got, err)
					}
				}
				if _, err := io.ReadFull(data, make([]byte, len("80:"))); err != nil {
					t.Fatal(err)
				}
				echo()
				half := openForward(t, conn, "error", "80", "1") // and no data
				if _, err := tryForward(conn, "error", "80", "2"); err == nil {
					t.Fatal("a third connection was let in")
				}
				echo()
				_ = half.Reset()
				_ = errs.Close()
				_ = data.Close()
				eventually(t, "a place for another when the first has gone", func() bool {
					_, err := tryForward(conn, "error", "80", "3")
					return err == nil
				})
			})
		}
	})
}

// The older WebSocket protocols name all their ports at once.
func TestPortsOfAWebSocketAreLimited(t *testing.T) {
	server := servePods(t, limited(api.StreamLimits{ConnectionsPerSession: 2}))
	if resp, _ := ask(t, server, "GET /portForward/ns/p?port=1,2,3", webSocketUpgrade); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("three ports: %s", resp.Status)
	}
	if resp, _ := ask(t, server, "GET /portForward/ns/p?port=1,2", webSocketUpgrade); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("two ports: %s", resp.Status)
	}
}
