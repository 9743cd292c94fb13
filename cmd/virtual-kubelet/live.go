package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// live are the settings that a process takes over while it runs: those that are Reloaded.
type live struct {
	level    slog.LevelVar
	format   logFormat
	requests requestLimit
	traces   traceSampler
}

func newLive(o *options) *live {
	l := new(live)
	l.use(o)
	return l
}

// use puts the values of o into force.
func (l *live) use(o *options) {
	l.level.Set(logLevels[o.logLevel])
	l.format.use(o.logFormat)
	qps, burst := o.requestLimit()
	l.requests.use(qps, burst)
	l.traces.use(o.sampler())
}

// requestLimit limits requests to the API server. Those that wait already keep their turn
// when it changes.
type requestLimit struct {
	current atomic.Pointer[rate.Limiter]
}

// use sets the limit; a negative number of requests per second is none.
func (l *requestLimit) use(qps float32, burst int) {
	limit := rate.Limit(qps)
	if qps < 0 {
		limit = rate.Inf
	}
	l.current.Store(rate.NewLimiter(limit, burst))
}

// wrap returns a transport of requests that have to wait for their turn. A limiter of client-go would be that of
// leases, too, on which it depends whether a node is ready and a process leads: they are not to wait for pods.
func (l *requestLimit) wrap(next http.RoundTripper) http.RoundTripper {
	return &limitedTransport{l, next}
}

type limitedTransport struct {
	limit *requestLimit
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !unlimited(r) {
		if err := t.limit.current.Load().Wait(r.Context()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as that of any request
			}
			return nil, fmt.Errorf("wait for a turn by --kube-api-qps: %w", err)
		}
	}
	return t.next.RoundTrip(r)
}

// unlimited reports whether a request is about leases or, as in client-go, a watch.
func unlimited(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/apis/"+coordinationv1.GroupName+"/") || r.URL.Query().Get("watch") == "true"
}

// traceSampler decides as another sampler does, which can be replaced.
type traceSampler struct {
	current atomic.Pointer[sdktrace.Sampler]
}

var _ sdktrace.Sampler = (*traceSampler)(nil)

func (s *traceSampler) use(sampler sdktrace.Sampler) { s.current.Store(&sampler) }

// ShouldSample implements sdktrace.Sampler.
func (s *traceSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return (*s.current.Load()).ShouldSample(p)
}

// Description implements sdktrace.Sampler.
func (s *traceSampler) Description() string { return (*s.current.Load()).Description() }
