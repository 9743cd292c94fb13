package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// logFile is a log whose Close can be watched.
type logFile struct {
	io.Reader
	closed chan struct{}
	closes atomic.Int32
	then   func()
}

func newLogFile(r io.Reader) *logFile { return &logFile{Reader: r, closed: make(chan struct{})} }

func (f *logFile) Close() error {
	if f.closes.Add(1) == 1 {
		close(f.closed)
		if f.then != nil {
			f.then()
		}
	}
	return nil
}

func serveLog(t *testing.T, log io.ReadCloser) (get func(query string) reply, opened <-chan api.ContainerLogOpts, open func(query string) *http.Response) {
	t.Helper()
	calls := make(chan api.ContainerLogOpts, 10)
	server := servePods(t, api.PodHandlerConfig{
		GetContainerLogs: func(_ context.Context, namespace, pod, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
			if namespace != "ns" || pod != "p" || container != "c" {
				return nil, errdefs.NotFoundf("container %q not found in pod %q", container, pod)
			}
			calls <- opts
			if log == nil {
				return nil, nil
			}
			return log, nil
		},
	})
	get = func(query string) reply { return do(t, server, "GET", "/containerLogs/ns/p/c"+query) }
	open = func(query string) *http.Response {
		req, err := http.NewRequestWithContext(testContext(t), "GET", server.URL+"/containerLogs/ns/p/c"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	return get, calls, open
}

func TestLogsAreRawBytes(t *testing.T) {
	raw := "a\r\nb\rc\n\n\x00\xff\xfe<&>\t\x1b[31mred\x1b[0m no newline at the end"
	log := newLogFile(strings.NewReader(raw))
	get, opened, _ := serveLog(t, log)
	got := get("?timestamps=true&previous=1")
	if got.StatusCode != 200 || got.body != raw {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	if len(got.TransferEncoding) != 1 || got.TransferEncoding[0] != "chunked" || got.Header.Get("Content-Encoding") != "" {
		t.Errorf("sent as %v with %v", got.TransferEncoding, got.Header)
	}
	if opts := <-opened; opts != (api.ContainerLogOpts{Timestamps: true, Previous: true}) {
		t.Errorf("asked for %+v", opts)
	}
	within(t, log.closed, "close of the log")
	if n := log.closes.Load(); n != 1 {
		t.Errorf("closed %d times", n)
	}
}

func TestNilLogIsEmpty(t *testing.T) {
	get, _, _ := serveLog(t, nil)
	if got := get(""); got.StatusCode != 200 || got.body != "" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
}

func TestLogsOfNobody(t *testing.T) {
	server := servePods(t, api.PodHandlerConfig{
		GetContainerLogs: func(_ context.Context, _, pod, container string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
			return nil, errdefs.NotFoundf("container %q not found in pod %q", container, pod)
		},
	})
	do(t, server, "GET", "/containerLogs/ns/p/c").want(t, 404, `container "c" not found in pod "p"`)
}

func TestFollowSendsHeadersAndEachPieceAtOnce(t *testing.T) {
	r, w := io.Pipe()
	log := newLogFile(r)
	_, _, open := serveLog(t, log)
	resp := open("?follow=true") // returns although there is no byte yet
	if resp.StatusCode != 200 || resp.Header.Get("Content-Encoding") != "" {
		t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
	}
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		want := fmt.Sprintf("line %d\n", i)
		if _, err := io.WriteString(w, want); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	w.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("rest is %q, %v", rest, err)
	}
	within(t, log.closed, "close of the log")
}

func TestClientThatHasGoneClosesTheLogWhileItIsRead(t *testing.T) {
	r, w := io.Pipe() // never written to: Read blocks
	defer w.Close()
	log := newLogFile(r)
	log.then = func() { r.Close() }
	_, _, open := serveLog(t, log)
	resp := open("?follow=true")
	resp.Body.Close()
	within(t, log.closed, "close of the log")
	if n := log.closes.Load(); n != 1 {
		t.Errorf("closed %d times", n)
	}
}

func TestLimitBytesIsEnforced(t *testing.T) {
	r, w := io.Pipe()
	log := newLogFile(r)
	log.then = func() { r.Close() }
	get, opened, _ := serveLog(t, log)
	go io.WriteString(w, "0123456789") // and the pipe stays open
	if got := get("?limitBytes=4&follow=true"); got.body != "0123" {
		t.Errorf("got %q", got.body)
	}
	if opts := <-opened; opts.LimitBytes != 4 {
		t.Errorf("asked for %+v", opts)
	}
	within(t, log.closed, "close of the log")
}

func TestBrokenLogIsNotTakenForAWholeOne(t *testing.T) {
	for name, broken := range map[string]io.Reader{
		"error": errorReader{errors.New("backend lost")},
		"panic": errorReader{},
	} {
		t.Run(name, func(t *testing.T) {
			log := newLogFile(io.MultiReader(strings.NewReader("half"), broken))
			_, _, open := serveLog(t, log)
			got, err := io.ReadAll(open("").Body)
			if string(got) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %q, %v", got, err)
			}
			within(t, log.closed, "close of the log")
		})
	}
}

// A server that ends breaks off the logs that are read, regardless of what their readers
// return when they are closed.
func TestLogCutByShutdownIsNotTakenForAWholeOne(t *testing.T) {
	for name, end := range map[string]error{"end": io.EOF, "error": io.ErrClosedPipe} {
		t.Run(name, func(t *testing.T) {
			base, shutdown := context.WithCancel(t.Context())
			server := httptest.NewUnstartedServer(api.PodHandler(api.PodHandlerConfig{
				GetContainerLogs: func(ctx context.Context, _, _, _ string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
					return io.NopCloser(io.MultiReader(strings.NewReader("half"), endWith{ctx, end})), nil
				},
			}, false))
			server.Config.BaseContext = func(net.Listener) context.Context { return base }
			server.Start()
			defer server.Close()
			resp, err := server.Client().Get(server.URL + "/containerLogs/ns/p/c?follow=true")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, len("half"))); err != nil {
				t.Fatal(err)
			}
			shutdown()
			if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %q, %v", rest, err)
			}
		})
	}
}

// endWith is a reader that ends with its context.
type endWith struct {
	ctx context.Context
	err error
}

func (r endWith) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, r.err
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) {
	if r.err == nil {
		panic("unreadable")
	}
	return 0, r.err
}

func TestLogQuery(t *testing.T) {
	since := time.Date(2026, 11, 21, 2, 3, 4, 0, time.UTC)
	const decode, invalid = `{"message": "Unable to decode query."}`, `{"message": "Invalid request."}`
	for _, c := range []struct {
		query  string
		want   api.ContainerLogOpts
		status int
		text   string
	}{
		{query: ""},
		{query: "?follow=true&previous=true&timestamps=true", want: api.ContainerLogOpts{Follow: true, Previous: true, Timestamps: true}},
		{query: "?follow=1&previous=0&timestamps=false", want: api.ContainerLogOpts{Follow: true}},
		{query: "?follow=False&previous", want: api.ContainerLogOpts{Previous: true}},
		{query: "?tailLines=10&limitBytes=5&sinceSeconds=3", want: api.ContainerLogOpts{Tail: 10, LimitBytes: 5, SinceSeconds: 3}},
		{query: "?tail=7", want: api.ContainerLogOpts{Tail: 7}},
		{query: "?tail=7&tailLines=9", want: api.ContainerLogOpts{Tail: 7}},
		{query: "?tail=all&tailLines=9"},
		{query: "?tail="},
		{query: "?sinceTime=2026-11-21T02:03:04Z", want: api.ContainerLogOpts{SinceTime: since}},
		{query: "?sinceTime=2026-11-21T03:03:04%2B01:00", want: api.ContainerLogOpts{SinceTime: since}},
		{query: "?sinceTime="},
		{query: "?container=other&insecureSkipTLSVerifyBackend=true&unknown=x"},
		{query: "?tailLines=x", status: 400, text: decode},
		{query: "?tail=x", status: 400, text: decode},
		{query: "?tailLines=", status: 400, text: decode},
		{query: "?tailLines=99999999999999999999", status: 400, text: decode},
		{query: "?limitBytes=1k", status: 400, text: decode},
		{query: "?sinceSeconds=1.5", status: 400, text: decode},
		{query: "?sinceTime=yesterday", status: 400, text: decode},
		{query: "?tailLines=%zz", status: 400, text: decode},
		{query: "?follow=true;tailLines=1", status: 400, text: decode},
		{query: "?stream=All&tailLines=3", want: api.ContainerLogOpts{Tail: 3}},
		{query: "?stream=Stdout", status: 501, text: "ContainerLogStreamHandlerFunc"},
		{query: "?stream=", status: 422, text: invalid},
		{query: "?stream=stdout", status: 422, text: invalid},
		{query: "?stream=Both", status: 422, text: invalid},
		{query: "?stream=Stdout&tailLines=3", status: 422, text: invalid},
		{query: "?stream=Stderr&tailLines=0", status: 422, text: invalid},
		{query: "?tailLines=-1", status: 422, text: invalid},
		{query: "?tail=-1", status: 422, text: invalid},
		{query: "?limitBytes=0", status: 422, text: invalid},
		{query: "?limitBytes=-1", status: 422, text: invalid},
		{query: "?sinceSeconds=0", status: 422, text: invalid},
		{query: "?sinceSeconds=-3", status: 422, text: invalid},
		{query: "?sinceSeconds=3&sinceTime=2026-11-21T02:03:04Z", status: 422, text: invalid},
	} {
		t.Run(c.query, func(t *testing.T) {
			get, opened, _ := serveLog(t, nil)
			got := get(c.query)
			if c.status != 0 {
				got.want(t, c.status, c.text)
				if len(opened) > 0 {
					t.Error("the provider was asked all the same")
				}
				return
			}
			got.want(t, 200, "")
			opts := <-opened
			if !opts.SinceTime.Equal(c.want.SinceTime) {
				t.Errorf("SinceTime is %s, want %s", opts.SinceTime, c.want.SinceTime)
			}
			opts.SinceTime = c.want.SinceTime
			if opts != c.want {
				t.Errorf("got %+v, want %+v", opts, c.want)
			}
		})
	}
}

func TestNoLinesAtAll(t *testing.T) {
	log := newLogFile(strings.NewReader("old lines\n"))
	get, opened, _ := serveLog(t, log)
	if got := get("?tailLines=0"); got.StatusCode != 200 || got.body != "" || len(opened) > 0 {
		t.Errorf("got %d %q, and %d calls of the provider", got.StatusCode, got.body, len(opened))
	}
	before := time.Now()
	get("?tailLines=0&follow=true&sinceSeconds=60")
	opts := <-opened
	if opts.Tail != 0 || opts.SinceSeconds != 0 || !opts.Follow || opts.SinceTime.Before(before) || opts.SinceTime.After(time.Now()) {
		t.Errorf("asked for %+v", opts)
	}
}

func TestLogsOfASingleStream(t *testing.T) {
	server := servePods(t, api.PodHandlerConfig{
		GetContainerLogs: func(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("both")), nil
		},
		GetContainerLogStream: func(_ context.Context, namespace, pod, container, stream string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(fmt.Sprint(namespace, pod, container, stream, opts.LimitBytes))), nil
		},
	})
	do(t, server, "GET", "/containerLogs/ns/p/c?stream=Stdout&limitBytes=99").want(t, 200, "nspcStdout99")
	do(t, server, "GET", "/containerLogs/ns/p/c?stream=Stderr&sinceSeconds=1").want(t, 200, "nspcStderr0")
	do(t, server, "GET", "/containerLogs/ns/p/c?stream=All").want(t, 200, "both")
	do(t, server, "GET", "/containerLogs/ns/p/c").want(t, 200, "both")
}

// TestLogsWithABody: a body that nobody reads would hide that the client has
// gone.
func TestLogsWithABody(t *testing.T) {
	server := servePods(t, api.PodHandlerConfig{GetContainerLogs: noLogs})
	for _, header := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
		conn := dialRaw(t, server)
		fmt.Fprintf(conn, "GET /containerLogs/ns/p/c?follow=true HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", header)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 400 {
			t.Errorf("%s: got %s", header, resp.Status)
		}
	}
}

// TestSlowReaderOfLogs: a client that does not read holds up nobody else, and
// releases the log when it goes.
func TestSlowReaderOfLogs(t *testing.T) {
	log := newLogFile(zeros(1 << 40))
	_, _, open := serveLog(t, log)
	slow := open("?follow=true")
	if got := open("?tailLines=0"); got.StatusCode != 200 {
		t.Errorf("got %s", got.Status)
	}
	slow.Body.Close()
	within(t, log.closed, "close of the log")
}

// lookalike is what a provider converts ContainerLogOpts to.
type lookalike struct {
	Tail         int
	LimitBytes   int
	Timestamps   bool
	Follow       bool
	Previous     bool
	SinceSeconds int
	SinceTime    time.Time
}

var _ = lookalike(api.ContainerLogOpts{})
