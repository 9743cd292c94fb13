package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// recorder is a logger and a tracer that remembers.
type recorder struct {
	mu    *sync.Mutex
	lines *[]string
	ended *int
	keys  string
}

func newRecorder() recorder { return recorder{&sync.Mutex{}, &[]string{}, new(int), ""} }

func (r recorder) add(level string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.lines = append(*r.lines, level+" "+fmt.Sprint(args...)+r.keys)
}

func (r recorder) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(*r.lines, "\n")
}

func (r recorder) Debug(a ...any)            { r.add("debug", a...) }
func (r recorder) Debugf(f string, a ...any) { r.add("debug", fmt.Sprintf(f, a...)) }
func (r recorder) Info(a ...any)             { r.add("info", a...) }
func (r recorder) Infof(f string, a ...any)  { r.add("info", fmt.Sprintf(f, a...)) }
func (r recorder) Warn(a ...any)             { r.add("warn", a...) }
func (r recorder) Warnf(f string, a ...any)  { r.add("warn", fmt.Sprintf(f, a...)) }
func (r recorder) Error(a ...any)            { r.add("error", a...) }
func (r recorder) Errorf(f string, a ...any) { r.add("error", fmt.Sprintf(f, a...)) }
func (r recorder) Fatal(a ...any)            { r.add("fatal", a...) }
func (r recorder) Fatalf(f string, a ...any) { r.add("fatal", fmt.Sprintf(f, a...)) }
func (r recorder) WithError(err error) log.Logger {
	return r.WithField("err", err)
}
func (r recorder) WithField(k string, v any) log.Logger {
	r.keys += fmt.Sprintf(" %s=%v", k, v)
	return r
}
func (r recorder) WithFields(f log.Fields) log.Logger {
	l := log.Logger(r)
	for k, v := range f {
		l = l.WithField(k, v)
	}
	return l
}

func (r recorder) StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	return ctx, span{r}
}

type span struct{ recorder }

func (s span) End()                { s.mu.Lock(); *s.ended++; s.mu.Unlock() }
func (s span) SetStatus(err error) { s.add("status", err) }
func (s span) Logger() log.Logger  { return s.recorder }
func (s span) WithField(ctx context.Context, k string, v any) context.Context {
	return log.WithLogger(ctx, s.recorder.WithField(k, v))
}
func (s span) WithFields(ctx context.Context, f log.Fields) context.Context {
	return log.WithLogger(ctx, s.recorder.WithFields(f))
}

func serveRecorded(t *testing.T, h http.Handler) (*httptest.Server, recorder) {
	t.Helper()
	rec := newRecorder()
	server := httptest.NewUnstartedServer(api.InstrumentHandler(h))
	server.Config.BaseContext = func(net.Listener) context.Context {
		return trace.WithTracer(log.WithLogger(context.Background(), rec), rec)
	}
	server.Start()
	t.Cleanup(server.Close)
	return server, rec
}

func TestInstrumentHandlerGivesSpanAndLogger(t *testing.T) {
	server, rec := serveRecorded(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.G(r.Context()).Info("inside")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	do(t, server, "GET", "/exec/ns/p/c?command=login&command=hunter2")
	server.Close() // and so the handler has ended
	lines := rec.all()
	for _, want := range []string{"info inside", "method=GET", "uri=/exec/ns/p/c", "status answered with HTTP status 503", "debug handled request"} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q is missing in\n%s", want, lines)
		}
	}
	if strings.Contains(lines, "hunter2") {
		t.Errorf("the query is in\n%s", lines)
	}
	if *rec.ended != 1 {
		t.Errorf("%d spans have ended", *rec.ended)
	}
}

func TestInstrumentHandlerRecoversPanics(t *testing.T) {
	server, rec := serveRecorded(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
		}
		panic("oh")
	}))
	do(t, server, "GET", "/early").want(t, 500, "panicked")
	resp, err := server.Client().Get(server.URL + "/late")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil || string(body) != "half" {
		t.Errorf("got %q, %v: the break-off must show", body, err)
	}
	if lines := rec.all(); strings.Count(lines, "error handler panicked") != 2 || !strings.Contains(lines, "panic=oh") {
		t.Errorf("logged\n%s", lines)
	}
}

func TestInstrumentHandlerLeavesAbortsAlone(t *testing.T) {
	server, rec := serveRecorded(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	if resp, err := server.Client().Get(server.URL); err == nil {
		resp.Body.Close()
		t.Errorf("got %s", resp.Status)
	}
	server.Close()
	if lines := rec.all(); strings.Contains(lines, "panicked") {
		t.Errorf("logged\n%s", lines)
	}
}

func TestInstrumentHandlerLeavesHijackedConnectionsAlone(t *testing.T) {
	server, _ := serveRecorded(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			defer conn.Close()
			io.WriteString(conn, "ours\n")
		}()
		panic("after")
	}))
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got, err := io.ReadAll(bufio.NewReader(conn)); err != nil || string(got) != "ours\n" {
		t.Errorf("got %q, %v", got, err)
	}
}
