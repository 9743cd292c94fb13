package api_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const manySessions = 500

// maxSession is how many bytes of memory a session may cost, regardless of what its client does.
const maxSession = 300_000

// rawSession is a session whose client is as small as can be, so that what it
// costs is the server's.
type rawSession struct {
	request, upgrade string
	streams          []http.Header // of SPDY
	// most is how many bytes of heap and stack a session may cost.
	most int64
	// goroutines is how many a session may have.
	goroutines int
}

var rawSessions = map[string]rawSession{
	"logs":             {"GET /containerLogs/ns/p/c?follow=true", "", nil, 160 << 10, 4},
	"exec/websocket":   {"GET /exec/ns/p/c?command=x&input=1&output=1&error=1", v5Upgrade, nil, 128 << 10, 8},
	"attach/websocket": {"GET /attach/ns/p/c?input=1&output=1&error=1", v5Upgrade, nil, 128 << 10, 8},
	"exec/spdy": {"POST /exec/ns/p/c?command=x&input=1&output=1&error=1", spdyUpgrade, []http.Header{
		{"Streamtype": {"error"}}, {"Streamtype": {"stdin"}}, {"Streamtype": {"stdout"}}, {"Streamtype": {"stderr"}},
	}, maxSession, 20},
	"portforward/websocket": {"GET /portForward/ns/p?port=80", webSocketUpgrade, nil, 128 << 10, 8},
	"portforward/spdy": {"POST /portForward/ns/p", forwardUpgrade, []http.Header{
		{"Streamtype": {"error"}, "Port": {"80"}}, {"Streamtype": {"data"}, "Port": {"80"}},
	}, maxSession, 20},
}

// opener returns a function that opens a session, and returns when the provider
// has it.
func (s rawSession) opener(t testing.TB) (open func() net.Conn) {
	t.Helper()
	started := make(chan struct{}, manySessions)
	provider := idle(started)
	provider.StreamLimiter = api.NewStreamLimiter(api.StreamLimits{Sessions: api.Quota{PerPod: -1, PerNamespace: -1}, Connections: api.Quota{PerPod: -1}})
	server := serveTLS(t, provider)
	var frames []byte
	if s.streams != nil {
		_, path, _ := strings.Cut(s.request, " ")
		_, protocol, _ := strings.Cut(strings.TrimSpace(s.upgrade), "Version: ")
		frames = record(t, server, path, protocol, func(conn httpstream.Connection) {
			for _, header := range s.streams {
				if _, err := conn.CreateStream(header); err != nil {
					t.Fatal(err)
				}
			}
			<-started
		})
	}
	return func() net.Conn {
		resp, conn := ask(t, server, s.request, s.upgrade)
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("got %s", resp.Status)
		}
		if _, err := conn.Write(frames); err != nil {
			t.Fatal(err)
		}
		<-started
		return conn
	}
}

// TestManySessionsAreSmall: what 500 sessions at once cost each.
func TestManySessionsAreSmall(t *testing.T) {
	for name, c := range rawSessions {
		t.Run(name, func(t *testing.T) {
			check := noLeaks(t)
			t.Run("", func(t *testing.T) {
				open := c.opener(t)
				open() // makes what is made once
				memory, goroutines := inUse(), runtime.NumGoroutine()
				for range manySessions {
					open()
				}
				each := (inUse() - memory) / manySessions
				goroutinesEach := (runtime.NumGoroutine() - goroutines) / manySessions
				t.Logf("each session: %d KiB, %d goroutines", each>>10, goroutinesEach)
				if each > c.most {
					t.Errorf("a session costs %d KiB, more than %d", each>>10, c.most>>10)
				}
				if goroutinesEach > c.goroutines {
					t.Errorf("a session has %d goroutines, more than %d", goroutinesEach, c.goroutines)
				}
			})
			check()
		})
	}
}

// idle is a provider whose functions wait, and signal when they begin.
func idle(started chan<- struct{}) api.PodHandlerConfig {
	wait := func(ctx context.Context) error {
		started <- struct{}{}
		<-ctx.Done()
		return nil
	}
	return api.PodHandlerConfig{
		GetContainerLogs: func(ctx context.Context, _, _, _ string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
			return &waitingLog{ctx, wait}, nil
		},
		RunInContainer:    func(ctx context.Context, _, _, _ string, _ []string, _ api.AttachIO) error { return wait(ctx) },
		AttachToContainer: func(ctx context.Context, _, _, _ string, _ api.AttachIO) error { return wait(ctx) },
		PortForward:       func(ctx context.Context, _, _ string, _ int32, _ io.ReadWriteCloser) error { return wait(ctx) },
	}
}

// inUse is the memory of heap and stacks after a collection.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// BenchmarkManySessions opens 500 sessions, one after the other, and closes all.
func BenchmarkManySessions(b *testing.B) {
	for name, c := range rawSessions {
		b.Run(name, func(b *testing.B) {
			open := c.opener(b)
			for b.Loop() {
				before := inUse()
				conns := make([]net.Conn, manySessions)
				for i := range conns {
					conns[i] = open()
				}
				b.ReportMetric(float64(inUse()-before)/manySessions, "B/session")
				for _, conn := range conns {
					conn.Close()
				}
			}
		})
	}
}

// TestPortForwardForgetsConnections: a session that serves many connections, one
// after the other, does not grow with them.
func TestPortForwardForgetsConnections(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		conn := dialForward(t, how, echoPort)
		use := func(from, n int) {
			for i := range n {
				id := fmt.Sprint(from + i)
				errs := openForward(t, conn, "error", "80", id)
				data := openForward(t, conn, "data", "80", id)
				wantEcho(t, data, "80")
				errs.Close()
				conn.RemoveStreams(errs, data)
			}
		}
		use(0, 200)
		before := inUse()
		const n = 3000
		use(200, n)
		after := inUse()
		if (after-before)/n > 200 {
			t.Errorf("each connection leaves %d bytes", (after-before)/n)
		}
	})
}

// TestStalledSessionsAreSmall: sessions whose providers do not read, and whose clients
// send what they can, on all streams, in frames and messages as large as can be.
func TestStalledSessionsAreSmall(t *testing.T) {
	const sessions, sent = 30, 2 << 20
	const maxStalled = 2 * maxSession // there are too few to tell them from what else the process makes and collects
	data := make([]byte, 32<<10)
	var spdyFrames []byte // one for each of the session's streams
	for i := range rawSessions["exec/spdy"].streams {
		spdyFrames = append(append(spdyFrames, 0, 0, 0, byte(2*i+1), 0, 0, byte(len(data)>>8), 0), data...)
	}
	message := append([]byte{0x82, 0x80 | 127, 0, 0, 0, 0, 0x01, 0xff, 0xff, 0xff, 0, 0, 0, 0}, data...) // of 32 MiB, that begins
	for name, c := range map[string]struct{ first, then []byte }{
		"exec/spdy":      {nil, spdyFrames},
		"exec/websocket": {message, data},
	} {
		t.Run(name, func(t *testing.T) {
			open := rawSessions[name].opener(t)
			open() // makes what is made once
			before := inUse()
			for range sessions {
				conn := open()
				// Its end is to be seen at once: an orderly one waits behind what was sent.
				_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0)
				_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				_, err := conn.Write(c.first)
				for range sent / len(c.then) {
					if err == nil {
						_, err = conn.Write(c.then)
					}
				}
			}
			time.Sleep(300 * time.Millisecond) // for what is read ahead
			each := (inUse() - before) / sessions
			t.Logf("each session: %d KiB", each>>10)
			if each > maxStalled {
				t.Errorf("a stalled session costs %d bytes, more than %d", each, maxStalled)
			}
		})
	}
}
