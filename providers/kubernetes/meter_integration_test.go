//go:build integration

package kubernetes_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// meter counts the bytes of the connections that clients have with an API server through it.
type meter struct{ sent, received atomic.Int64 }

// startMeter returns a meter, and the URL under which clients find the API server behind it.
func startMeter(t *testing.T, server string) (*meter, string) {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(to.Hostname(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { m.forward(ctx, client, to.Host) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		stop()
		running.Wait()
	})
	return m, "https://" + listener.Addr().String()
}

// forward serves a connection until either side closes it, or ctx ends: the node's client
// keeps connections for a while.
func (m *meter) forward(ctx context.Context, client net.Conn, to string) {
	defer client.Close()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return // the client tries again
	}
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(io.MultiWriter(client, counter{&m.received}), server)
		_ = client.Close()
	})
	_, _ = io.Copy(io.MultiWriter(server, counter{&m.sent}), client)
	_ = server.Close()
	back.Wait()
}

// reading is what clients have asked of an API server so far.
type reading struct {
	requests              map[string]int
	calls, sent, received int
}

// read returns what the API server was asked, by its audit log, once that has all of it.
func (m *meter) read(t *testing.T, asked audit) reading {
	t.Helper()
	r := reading{requests: asked.aboutPods(t), sent: int(m.sent.Load()), received: int(m.received.Load())}
	for _, n := range r.requests {
		r.calls += n
	}
	return r
}

func (r reading) since(before reading) reading {
	return reading{calls: r.calls - before.calls, sent: r.sent - before.sent, received: r.received - before.received}
}

// counter counts what is written to it.
type counter struct{ bytes *atomic.Int64 }

// Write implements io.Writer.
func (c counter) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}
