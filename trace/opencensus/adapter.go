package opencensus

import (
	"context"

	octrace "go.opencensus.io/trace"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/internal/spanlogger"
)

var _ trace.Tracer = Adapter{}

// Adapter starts spans with OpenCensus. Its zero value is ready for use.
type Adapter struct{}

// StartSpan implements trace.Tracer. The logger of the returned context is the
// span's.
func (Adapter) StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	ctx, ocSpan := octrace.StartSpan(ctx, name)
	r := &recorder{ocSpan}
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

// SetStatus sets OK for nil, and else the code of the error's class, with the
// error's text.
func (s span) SetStatus(err error) {
	if !s.recorder.Recording() {
		return
	}
	status := octrace.Status{Code: octrace.StatusCodeOK}
	if err != nil {
		status = octrace.Status{Code: code(errdefs.ClassOf(err)), Message: err.Error()}
	}
	s.recorder.span.SetStatus(status)
}

// code returns OpenCensus' code, which is gRPC's too, for a class of errors.
func code(class errdefs.Class) int32 {
	switch class {
	case errdefs.PermanentClass:
		return octrace.StatusCodeFailedPrecondition
	case errdefs.InvalidInputClass:
		return octrace.StatusCodeInvalidArgument
	case errdefs.NotFoundClass:
		return octrace.StatusCodeNotFound
	case errdefs.ConflictClass:
		return octrace.StatusCodeAborted
	case errdefs.RetryAfterClass:
		return octrace.StatusCodeResourceExhausted
	case errdefs.UnavailableClass:
		return octrace.StatusCodeUnavailable
	}
	return octrace.StatusCodeUnknown
}

func (s span) WithField(ctx context.Context, key string, value any) context.Context {
	return s.WithFields(ctx, log.Fields{key: value})
}

func (s span) WithFields(ctx context.Context, fields log.Fields) context.Context {
	if s.recorder.Recording() {
		s.recorder.span.AddAttributes(attributesOf(fields)...)
	}
	return log.WithLogger(ctx, spanlogger.New(log.G(ctx), s.recorder).WithFields(fields))
}

// SetAttributes implements trace.AttributeSetter.
func (s span) SetAttributes(fields log.Fields) {
	if s.recorder.Recording() {
		s.recorder.span.AddAttributes(attributesOf(fields)...)
	}
}

// Continue implements trace.Continuer.
func (s span) Continue(ctx context.Context) context.Context {
	return octrace.NewContext(ctx, s.recorder.span)
}

func (s span) Logger() log.Logger { return s.logger }

// recorder records log lines as the annotations of a span.
type recorder struct{ span *octrace.Span }

func (r *recorder) Recording() bool { return r.span.IsRecordingEvents() }

func (r *recorder) Record(level, msg string, fields log.Fields) {
	attrs := append(attributesOf(fields), octrace.StringAttribute("level", level))
	r.span.Annotate(attrs, msg)
}
