//go:build containers && !race

package cri

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

const (
	sessions = 60
	// maxSession is how many bytes of memory a session may cost, regardless of what its
	// client does: see the tests of node/api.
	maxSession = 300_000
	// maxAPI is what node/api itself needs for a session, at most.
	maxAPI = 260 << 10
)

// A session costs little, including its connection to the streaming server of the runtime,
// and leaves no goroutine.
func TestSessionsAreSmall(t *testing.T) {
	p := startProvider(t)
	pod := podAsking("sessions", corev1.ResourceRequirements{})
	main := &pod.Spec.Containers[0]
	main.Image, main.Command, main.Stdin = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1", []string{"cat"}, true
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the pod runs", func() bool {
		status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		return err == nil && status.Phase == corev1.PodRunning
	})
	server := httptest.NewTLSServer(api.PodHandler(api.PodHandlerConfig{RunInContainer: p.RunInContainer, AttachToContainer: p.AttachToContainer}, false))
	defer server.Close()
	for _, c := range []struct {
		name string
		open func(*testing.T) (closes func())
	}{
		{"exec", func(t *testing.T) func() {
			conn := openSession(t, server, "/exec/default/sessions/main?command=cat&input=1&output=1&error=1")
			conn.echo(t)
			return conn.close
		}},
		{"attach", func(t *testing.T) func() {
			conn := openSession(t, server, "/attach/default/sessions/main?input=1&output=1&error=1")
			conn.echo(t)
			return conn.close
		}},
		{"stalled exec", func(t *testing.T) func() {
			conn := openSession(t, server, "/exec/default/sessions/main?command=sleep&command=100000&input=1&output=1&error=1")
			conn.fill()
			return conn.close
		}},
		{"hop to the runtime", func(t *testing.T) func() { return hop(t, p) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			most := int64(maxSession)
			if c.name == "hop to the runtime" {
				most -= maxAPI
			}
			c.open(t)() // makes what is made once
			settle(t, 0)
			memory, goroutines := inUse(), runtime.NumGoroutine()
			var all []func()
			for range sessions {
				all = append(all, c.open(t))
			}
			time.Sleep(300 * time.Millisecond) // for what is read ahead
			each := (inUse() - memory) / sessions
			t.Logf("each session: %d KiB, %d goroutines", each>>10, (runtime.NumGoroutine()-goroutines)/sessions)
			if each > most {
				t.Errorf("a session costs %d bytes, more than %d", each, most)
			}
			for _, closes := range all {
				closes()
			}
			settle(t, goroutines)
		})
	}
}

// startProvider starts a containerd and a provider of it.
func startProvider(t *testing.T) *Provider {
	t.Helper()
	bin := filepath.Join("..", "..", "bin")
	starting, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := containerd.Start(starting, containerd.Options{
		Binary:       filepath.Join(bin, "containerd-up"),
		SandboxImage: pauseImage,
		Images:       []string{filepath.Join(bin, "conformance", "images.tar")},
		Log:          t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return newTestProvider(t, c.Dir(), c.Endpoint())
}

// settle waits until no session's goroutine is left: of those that serve sessions there
// are none, and there are at most so many goroutines as before, unless that is 0.
func settle(t *testing.T, before int) {
	t.Helper()
	var stacks string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		buffer := make([]byte, 4<<20)
		stacks = string(buffer[:runtime.Stack(buffer, true)])
		serving := strings.Contains(stacks, "spdystream") || strings.Contains(stacks, "RunInContainer") || strings.Contains(stacks, "AttachToContainer")
		if n := runtime.NumGoroutine(); !serving && (before == 0 || n <= before) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines of sessions are left:\n%s", stacks)
		}
	}
}

// inUse returns the memory of heap and stacks after a collection.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// rawClient is a client of WebSocket that is as small as can be, so that what a session
// costs is the agent's.
type rawClient struct{ net.Conn }

func openSession(t *testing.T, server *httptest.Server, path string) rawClient {
	t.Helper()
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	// One byte at a time: what a buffer reads ahead would be lost.
	resp, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s: got %s", path, resp.Status)
	}
	return rawClient{conn}
}

type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(1, len(p))]) }

// echo sends a line, and returns when it has come back: all of the session is there.
func (c rawClient) echo(t *testing.T) {
	t.Helper()
	line := []byte("\x00hello\n") // of the channel of stdin
	if _, err := c.Write(append([]byte{0x82, 0x80 | byte(len(line)), 0, 0, 0, 0}, line...)); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	buffer := make([]byte, 256)
	for !bytes.Contains(seen, []byte("hello\n")) {
		n, err := c.Read(buffer)
		if err != nil {
			t.Fatalf("%v, after %q", err, seen)
		}
		seen = append(seen, buffer[:n]...)
	}
}

// fill sends all that the agent reads, to a command that reads nothing.
func (c rawClient) fill() {
	// Its end is to be seen at once: an orderly one waits behind what was sent.
	if conn, ok := c.Conn.(*tls.Conn); ok {
		if tcp, ok := conn.NetConn().(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	data := make([]byte, 32<<10)
	_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	_, err := c.Write([]byte{0x82, 0x80 | 127, 0, 0, 0, 0, 0x01, 0xff, 0xff, 0xff, 0, 0, 0, 0}) // a message of 32 MiB begins
	for range 8 << 20 / len(data) {
		if err == nil {
			_, err = c.Write(data)
		}
	}
}

// close closes the connection as a client does that is killed.
func (c rawClient) close() {
	if conn, ok := c.Conn.(*tls.Conn); ok {
		_ = conn.NetConn().Close()
	}
}

// hop opens what the provider adds to a session, without the API's part.
func hop(t *testing.T, p *Provider) (closes func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, send := io.Pipe()
	s := &idleSession{in: in, seen: make(chan struct{}, 1), sizes: make(chan api.TermSize)}
	done := make(chan error, 1)
	go func() { done <- p.RunInContainer(ctx, "default", "sessions", "main", []string{"cat"}, s) }()
	go func() { _, _ = send.Write([]byte("hello\n")) }() // until it is read, or send is closed
	select {
	case <-s.seen:
	case err := <-done:
		t.Fatalf("the session ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("there is no answer")
	}
	return func() {
		cancel()
		_ = send.CloseWithError(io.ErrClosedPipe) // the client has gone
		<-done
		close(s.sizes)
	}
}

// idleSession is an api.AttachIO.
type idleSession struct {
	in    io.Reader
	seen  chan struct{}
	sizes chan api.TermSize
}

func (s *idleSession) Stdin() io.Reader            { return s.in }
func (s *idleSession) Stdout() io.WriteCloser      { return s }
func (s *idleSession) Stderr() io.WriteCloser      { return s }
func (s *idleSession) TTY() bool                   { return false }
func (s *idleSession) Resize() <-chan api.TermSize { return s.sizes }
func (s *idleSession) Close() error                { return nil }

func (s *idleSession) Write(p []byte) (int, error) {
	select {
	case s.seen <- struct{}{}:
	default:
	}
	return len(p), nil
}
