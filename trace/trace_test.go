package trace_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

func TestDefaultRecordsNothingButFieldsReachTheLogger(t *testing.T) {
	var buf bytes.Buffer
	ctx := log.WithLogger(context.Background(), vkslog.FromSlog(slog.New(slog.NewTextHandler(&buf, nil))))
	ctx, span := trace.StartSpan(ctx, "s")
	ctx = span.WithField(ctx, "pod", "ns/p")
	ctx = span.WithFields(ctx, log.Fields{"n": 1})
	log.G(ctx).Info("x")
	span.SetStatus(errors.New("boom"))
	span.End()
	if line := buf.String(); !strings.Contains(line, "pod=ns/p") || !strings.Contains(line, "n=1") {
		t.Errorf("logged %q", line)
	}
}

func TestEnabled(t *testing.T) {
	if trace.Enabled(t.Context()) {
		t.Error("the default tracer is reported to record")
	}
	if !trace.Enabled(trace.WithTracer(t.Context(), tracer{trace.T})) {
		t.Error("a tracer in the context is reported not to record")
	}
}

// A tracer that knows only the present is good enough.
func TestSpansInThePastAreForThoseWhoCan(t *testing.T) {
	_, span := trace.StartSpanAt(trace.WithTracer(t.Context(), tracer{trace.T}), "mine", time.Unix(1, 0))
	if n, ok := span.(named); !ok || n.name != "mine" {
		t.Errorf("the span is %v", span)
	}
}

type tracer struct{ trace.Tracer }

func (tr tracer) StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	ctx, span := tr.Tracer.StartSpan(ctx, name)
	return ctx, named{span, name}
}

type named struct {
	trace.Span
	name string
}

func (n named) Logger() log.Logger { return n.Span.Logger().WithField("span", n.name) }

func TestContextTracerWinsAndItsLoggerIsInTheContext(t *testing.T) {
	var buf bytes.Buffer
	ctx := log.WithLogger(context.Background(), vkslog.FromSlog(slog.New(slog.NewTextHandler(&buf, nil))))
	ctx = trace.WithTracer(ctx, tracer{trace.T})
	ctx, span := trace.StartSpan(ctx, "mine")
	defer span.End()
	log.G(ctx).Info("x")
	if !strings.Contains(buf.String(), "span=mine") {
		t.Errorf("logged %q", buf.String())
	}
}
