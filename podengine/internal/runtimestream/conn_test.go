package runtimestream_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/internal/runtimestream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// executor runs a function as the command of an exec.
type executor func(ctx context.Context, in io.Reader, out, errs io.WriteCloser) error

func (e executor) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errs io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return e(ctx, in, out, errs)
}

// serve starts the streaming server that runtimes have, and returns a connection to it.
func serve(t *testing.T, run executor) *runtimestream.Conn {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remotecommand.ServeExec(w, r, run, "pod", "uid", "main", nil, &remotecommand.Options{Stdin: true, Stdout: true, Stderr: true}, time.Hour, time.Minute, remotecommand.SupportedStreamingProtocols)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	at, err := url.Parse(server.URL + "/exec/token")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := runtimestream.Dial(t.Context(), at, remotecommand.StreamProtocolV4Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func open(t *testing.T, conn *runtimestream.Conn, kind string, out io.Writer) *runtimestream.Stream {
	t.Helper()
	s, err := conn.Open(out, runtimestream.Header{Name: "streamtype", Value: kind})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is sent arrives, in both directions and of any size, with its end.
func TestSession(t *testing.T) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	conn := serve(t, func(_ context.Context, in io.Reader, out, errs io.WriteCloser) error {
		_, err := io.Copy(out, in)
		_, _ = io.WriteString(errs, "done")
		return err
	})
	var status, out, errs bytes.Buffer
	failed := open(t, conn, "error", &status)
	in := open(t, conn, "stdin", nil)
	stdout, stderr := open(t, conn, "stdout", &out), open(t, conn, "stderr", &errs)
	var copying sync.WaitGroup
	copying.Go(func() { in.CopyFrom(bytes.NewReader(sent)) })
	if err := conn.Serve(failed, stdout, stderr); err != nil {
		t.Fatal(err)
	}
	copying.Wait()
	if !bytes.Equal(out.Bytes(), sent) || errs.String() != "done" || !strings.Contains(status.String(), `"Success"`) {
		t.Errorf("got %d bytes, %q and the status %s", out.Len(), &errs, &status)
	}
}

// A connection ends at once when it is closed, although the other end reads nothing.
func TestCloseWhileTheRuntimeReadsNothing(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	conn := serve(t, func(_ context.Context, in io.Reader, _, _ io.WriteCloser) error {
		<-release
		_, err := io.Copy(io.Discard, in) // without this the server does not end
		return err
	})
	failed := open(t, conn, "error", nil)
	in := open(t, conn, "stdin", nil)
	open(t, conn, "stdout", nil)
	open(t, conn, "stderr", nil)
	var running sync.WaitGroup
	running.Go(func() { in.CopyFrom(endless{}) })
	time.AfterFunc(500*time.Millisecond, conn.Close) // when buffers are full
	if err := conn.Serve(failed); err == nil {
		t.Error("a session that was closed has ended well")
	}
	running.Wait()
}

// endless has zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A refusal is in the error; a runtime that does not answer is waited for as long as the
// context.
func TestRefusals(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtimestream.Dial(t.Context(), at, remotecommand.StreamProtocolV4Name); err == nil || !strings.Contains(err.Error(), "404 page not found") {
		t.Errorf("got %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := runtimestream.Dial(ctx, &url.URL{Scheme: "http", Host: silent.Addr().String()}, remotecommand.StreamProtocolV4Name); err == nil {
		t.Error("a runtime that does not answer is connected to")
	}
}
