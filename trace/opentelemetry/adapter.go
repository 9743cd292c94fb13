package opentelemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/internal/spanlogger"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/virtual-kubelet/virtual-kubelet"

// errorTypeKey is OpenTelemetry's attribute for the class of an error.
const errorTypeKey = "error.type"

var (
	_ trace.Tracer    = Adapter{}
	_ trace.Backdater = Adapter{}
)

// Adapter starts spans with OpenTelemetry. Its zero value is ready for use.
type Adapter struct {
	// TracerProvider makes the spans. Defaults to OpenTelemetry's global one,
	// as it is when a span starts.
	TracerProvider oteltrace.TracerProvider
}

// StartSpan implements trace.Tracer. The logger of the returned context is the
// span's.
func (a Adapter) StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	return a.start(ctx, name)
}

// StartSpanAt implements trace.Backdater.
func (a Adapter) StartSpanAt(ctx context.Context, name string, start time.Time) (context.Context, trace.Span) {
	return a.start(ctx, name, oteltrace.WithTimestamp(start))
}

func (a Adapter) start(ctx context.Context, name string, options ...oteltrace.SpanStartOption) (context.Context, trace.Span) {
	provider := a.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	ctx, otelSpan := provider.Tracer(scope).Start(ctx, name, options...)
	r := &recorder{otelSpan}
	s := span{r, spanlogger.New(log.G(ctx), r)}
	return log.WithLogger(ctx, s.logger), s
}

var (
	_ trace.AttributeSetter = span{}
	_ trace.Continuer       = span{}
)

type span struct {
	recorder *recorder
	logger   log.Logger
}

func (s span) End() { s.recorder.span.End() }

// SetStatus sets Ok for nil, and else Error, with the error's text and its
// class as the attribute "error.type".
func (s span) SetStatus(err error) {
	if !s.recorder.Recording() {
		return
	}
	if err == nil {
		s.recorder.span.SetStatus(codes.Ok, "")
		return
	}
	s.recorder.span.SetStatus(codes.Error, err.Error())
	s.recorder.span.SetAttributes(attribute.String(errorTypeKey, string(errdefs.ClassOf(err))))
}

func (s span) WithField(ctx context.Context, key string, value any) context.Context {
	return s.WithFields(ctx, log.Fields{key: value})
}

func (s span) WithFields(ctx context.Context, fields log.Fields) context.Context {
	if s.recorder.Recording() {
		s.recorder.span.SetAttributes(attributesOf(fields)...)
	}
	return log.WithLogger(ctx, spanlogger.New(log.G(ctx), s.recorder).WithFields(fields))
}

// SetAttributes implements trace.AttributeSetter.
func (s span) SetAttributes(fields log.Fields) {
	if s.recorder.Recording() {
		s.recorder.span.SetAttributes(attributesOf(fields)...)
	}
}

// Continue implements trace.Continuer.
func (s span) Continue(ctx context.Context) context.Context {
	return oteltrace.ContextWithSpanContext(ctx, s.recorder.span.SpanContext())
}

func (s span) Logger() log.Logger { return s.logger }

// recorder records log lines as the events of a span.
type recorder struct{ span oteltrace.Span }

func (r *recorder) Recording() bool { return r.span.IsRecording() }

func (r *recorder) Record(level, msg string, fields log.Fields) {
	attrs := append(attributesOf(fields), attribute.String("level", level))
	r.span.AddEvent(msg, oteltrace.WithAttributes(attrs...))
}
