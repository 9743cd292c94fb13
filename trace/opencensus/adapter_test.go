package opencensus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	octrace "go.opencensus.io/trace"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/opencensus"
)

type exporter struct {
	mu    sync.Mutex
	spans []*octrace.SpanData
}

func (e *exporter) ExportSpan(s *octrace.SpanData) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spans = append(e.spans, s)
}

// record samples all spans that are below the returned context.
func record(t *testing.T) (context.Context, *exporter) {
	e := &exporter{}
	octrace.RegisterExporter(e)
	t.Cleanup(func() { octrace.UnregisterExporter(e) })
	ctx, root := octrace.StartSpan(context.Background(), "root", octrace.WithSampler(octrace.AlwaysSample()))
	t.Cleanup(root.End)
	return trace.WithTracer(ctx, opencensus.Adapter{}), e
}

func TestSetStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code int32
	}{
		"nil":         {nil, octrace.StatusCodeOK},
		"unknown":     {errors.New("boom"), octrace.StatusCodeUnknown},
		"not found":   {fmt.Errorf("pod: %w", errdefs.NotFound("boom")), octrace.StatusCodeNotFound},
		"invalid":     {errdefs.InvalidInput("boom"), octrace.StatusCodeInvalidArgument},
		"conflict":    {errdefs.AsConflict(errors.New("boom")), octrace.StatusCodeAborted},
		"unavailable": {errdefs.AsUnavailable(errors.New("boom")), octrace.StatusCodeUnavailable},
		"permanent":   {errdefs.AsPermanent(errors.New("boom")), octrace.StatusCodeFailedPrecondition},
		"retry after": {errdefs.AsRetryAfter(errors.New("boom"), time.Second), octrace.StatusCodeResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, e := record(t)
			_, span := trace.StartSpan(ctx, "s")
			span.SetStatus(tc.err)
			span.End()
			got := e.spans[0].Status
			if got.Code != tc.code {
				t.Errorf("code %d, want %d", got.Code, tc.code)
			}
			if tc.err != nil && got.Message != tc.err.Error() {
				t.Errorf("message %q", got.Message)
			}
		})
	}
}

func TestFieldsBecomeAttributes(t *testing.T) {
	ctx, e := record(t)
	ctx, span := trace.StartSpan(ctx, "s")
	ctx = span.WithField(ctx, "pod", "ns/p")
	span.WithFields(ctx, log.Fields{
		"bool": true, "int": 1, "int32": int32(2), "uint64": uint64(3), "huge": uint64(math.MaxUint64),
		"float": 1.5, "duration": time.Second, "error": errors.New("boom"), "nil": nil,
	})
	span.End()
	got := e.spans[0].Attributes
	for key, want := range map[string]any{
		"pod": "ns/p", "bool": true, "int": int64(1), "int32": int64(2), "uint64": int64(3),
		"huge": "18446744073709551615", "float": 1.5, "duration": "1s", "error": "boom", "nil": "<nil>",
	} {
		if got[key] != want {
			t.Errorf("%s is %#v, want %#v", key, got[key], want)
		}
	}
}

func TestLogLinesAreAnnotationsAndPassedOn(t *testing.T) {
	var buf bytes.Buffer
	ctx, e := record(t)
	ctx = log.WithLogger(ctx, vkslog.FromSlog(slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{AddSource: true}))))
	ctx, span := trace.StartSpan(ctx, "s")
	ctx = span.WithField(ctx, "pod", "ns/p")
	log.G(ctx).WithError(errors.New("boom")).Warnf("try %d", 2)
	span.Logger().Debug("only in the span")
	span.End()

	for _, want := range []string{"level=WARN", `msg="try 2"`, "pod=ns/p", "error=boom", "adapter_test.go:"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("no %s in %s", want, buf.String())
		}
	}
	lines := e.spans[0].Annotations
	if len(lines) != 2 || lines[0].Message != "try 2" || lines[1].Message != "only in the span" {
		t.Fatalf("annotations are %v", lines)
	}
	for key, want := range map[string]any{"level": "warn", "pod": "ns/p", "error": "boom"} {
		if got := lines[0].Attributes[key]; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

func TestChildHasItsParent(t *testing.T) {
	ctx, e := record(t)
	ctx, parent := trace.StartSpan(ctx, "parent")
	_, child := trace.StartSpan(ctx, "child")
	child.End()
	parent.End()
	if e.spans[0].ParentSpanID != e.spans[1].SpanID {
		t.Error("the second span is not the child of the first")
	}
}
