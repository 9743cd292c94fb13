// Package trace carries a tracer in the context, and so into the provider.
//
// The package itself records nothing: an application assigns an adapter (see
// the packages opentelemetry and opencensus beside this one) to T at start-up,
// or puts one into a context with WithTracer.
package trace

import (
	"context"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Tracer starts spans.
type Tracer interface {
	// StartSpan starts a span named name below the one that ctx carries, and
	// returns a context that carries the new one.
	StartSpan(ctx context.Context, name string) (context.Context, Span)
}

// Span is one traced operation. End must be called once.
type Span interface {
	End()

	// SetStatus records how the operation ended; nil means well. The class of
	// the error (package errdefs) decides which status that is.
	SetStatus(err error)

	// WithField and WithFields add attributes to the span, and to the logger
	// of the context that they return.
	WithField(ctx context.Context, key string, value any) context.Context
	WithFields(ctx context.Context, fields log.Fields) context.Context

	// Logger returns a logger whose lines are also recorded in the span.
	Logger() log.Logger
}

// AttributeSetter is a Span that takes attributes for itself alone, and not for a
// logger. Those of the adapters are; the spans of a tracer that records nothing
// are not, and so nobody has to make attributes for them.
type AttributeSetter interface {
	SetAttributes(log.Fields)
}

// Continuer is a Span that can have spans below it which are started elsewhere,
// such as by the worker of another queue, and also after it has ended.
type Continuer interface {
	// Continue returns ctx with the span as the parent of spans that are started
	// with it. The rest of ctx, its end and its logger, stays.
	Continue(ctx context.Context) context.Context
}

// Backdater is a Tracer that can start spans in the past, such as for the time that
// something waited before anybody could trace it.
type Backdater interface {
	// StartSpanAt is StartSpan for a span that began at start.
	StartSpanAt(ctx context.Context, name string, start time.Time) (context.Context, Span)
}

// T is the tracer of contexts that carry none. Assign it once at start-up,
// before anything starts a span; it is not synchronized. Its default records
// nothing.
var T Tracer = nopTracer{}

type tracerKey struct{}

// WithTracer returns a context that carries tracer.
func WithTracer(ctx context.Context, tracer Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, tracer)
}

// Enabled reports whether ctx carries a tracer, or T was assigned one. If not, spans
// record nothing, and what is made only for them need not be made.
func Enabled(ctx context.Context) bool {
	_, nop := tracerOf(ctx).(nopTracer)
	return !nop
}

// StartSpan starts a span with the tracer that ctx carries, or else with T.
// The logger that it puts into the returned context is the span's.
func StartSpan(ctx context.Context, name string) (context.Context, Span) {
	return StartSpanAt(ctx, name, time.Time{})
}

// StartSpanAt is StartSpan for a span that began at start, or begins now if that
// is zero or the tracer is no Backdater.
func StartSpanAt(ctx context.Context, name string, start time.Time) (context.Context, Span) {
	tracer := tracerOf(ctx)
	if nop, ok := tracer.(nopTracer); ok {
		return nop.StartSpan(ctx, name) // its logger is that of ctx already
	}
	var span Span
	if past, ok := tracer.(Backdater); ok && !start.IsZero() {
		ctx, span = past.StartSpanAt(ctx, name, start)
	} else {
		ctx, span = tracer.StartSpan(ctx, name)
	}
	return log.WithLogger(ctx, span.Logger()), span
}

func tracerOf(ctx context.Context) Tracer {
	if tracer, ok := ctx.Value(tracerKey{}).(Tracer); ok {
		return tracer
	}
	return T
}
