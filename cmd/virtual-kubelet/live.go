package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/flowcontrol"
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

var _ flowcontrol.RateLimiter = (*requestLimit)(nil)

// use sets the limit; a negative number of requests per second is none.
func (l *requestLimit) use(qps float32, burst int) {
	limit := rate.Limit(qps)
	if qps < 0 {
		limit = rate.Inf
	}
	l.current.Store(rate.NewLimiter(limit, burst))
}

func (l *requestLimit) Wait(ctx context.Context) error { return l.current.Load().Wait(ctx) }
func (l *requestLimit) TryAccept() bool                { return l.current.Load().Allow() }
func (l *requestLimit) Accept()                        { _ = l.Wait(context.Background()) }
func (l *requestLimit) QPS() float32                   { return float32(l.current.Load().Limit()) }
func (l *requestLimit) Stop()                          {}

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
