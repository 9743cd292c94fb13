package opentelemetry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/opentelemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(opts ...sdktrace.TracerProviderOption) (context.Context, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(append(opts, sdktrace.WithSpanProcessor(recorder))...)
	adapter := opentelemetry.Adapter{TracerProvider: provider}
	return trace.WithTracer(context.Background(), adapter), recorder
}

func values(attrs []attribute.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range attrs {
		m[string(a.Key)] = a.Value.AsInterface()
	}
	return m
}

func TestZeroValueUsesTheGlobalProvider(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	defer otel.SetTracerProvider(before)

	ctx, parent := opentelemetry.Adapter{}.StartSpan(context.Background(), "parent")
	_, child := opentelemetry.Adapter{}.StartSpan(ctx, "child")
	child.End()
	parent.End()

	spans := recorder.Ended()
	if len(spans) != 2 || spans[0].Name() != "child" {
		t.Fatalf("got %v", spans)
	}
	if spans[0].Parent().SpanID() != spans[1].SpanContext().SpanID() {
		t.Error("the second span is not the child of the first")
	}
}

func TestSpansCanBeginInThePast(t *testing.T) {
	ctx, recorder := record()
	begin := time.Now().Add(-time.Minute)
	_, span := trace.StartSpanAt(ctx, "old", begin)
	span.End()
	_, span = trace.StartSpanAt(ctx, "new", time.Time{})
	span.End()
	old, young := recorder.Ended()[0], recorder.Ended()[1]
	if !old.StartTime().Equal(begin) || young.StartTime().Before(old.EndTime()) {
		t.Errorf("the spans begin at %v and %v, want %v and now", old.StartTime(), young.StartTime(), begin)
	}
}

func TestSetStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		code  codes.Code
		class any
	}{
		"nil":       {nil, codes.Ok, nil},
		"unknown":   {errors.New("boom"), codes.Error, "unknown"},
		"not found": {fmt.Errorf("pod: %w", errdefs.NotFound("boom")), codes.Error, "not_found"},
		"invalid":   {errdefs.InvalidInput("boom"), codes.Error, "invalid_input"},
		"permanent": {errdefs.AsPermanent(errors.New("boom")), codes.Error, "permanent"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, recorder := record()
			_, span := trace.StartSpan(ctx, "s")
			span.SetStatus(tc.err)
			span.End()
			got := recorder.Ended()[0]
			if got.Status().Code != tc.code {
				t.Errorf("code %v, want %v", got.Status().Code, tc.code)
			}
			if tc.err != nil && got.Status().Description != tc.err.Error() {
				t.Errorf("description %q", got.Status().Description)
			}
			if class := values(got.Attributes())["error.type"]; class != tc.class {
				t.Errorf("error.type %v, want %v", class, tc.class)
			}
		})
	}
}

type id int

func (i id) String() string { return fmt.Sprintf("id-%d", int(i)) }

func TestFieldsBecomeAttributes(t *testing.T) {
	ctx, recorder := record()
	ctx, span := trace.StartSpan(ctx, "s")
	ctx = span.WithField(ctx, "pod", "ns/p")
	span.WithFields(ctx, log.Fields{
		"bool": true, "int": 1, "int32": int32(2), "uint64": uint64(3), "huge": uint64(math.MaxUint64),
		"float": 1.5, "strings": []string{"a", "b"}, "stringer": id(7), "duration": time.Second,
		"error": errors.New("boom"), "nil": nil, "nilptr": (*id)(nil), "map": map[string]int{"b": 2, "a": 1},
	})
	span.End()
	got := values(recorder.Ended()[0].Attributes())
	for key, want := range map[string]any{
		"pod": "ns/p", "bool": true, "int": int64(1), "int32": int64(2), "uint64": int64(3),
		"huge": "18446744073709551615", "float": 1.5, "stringer": "id-7", "duration": "1s",
		"error": "boom", "nil": "<nil>", "nilptr": "<nil>", "map": "map[a:1 b:2]",
	} {
		if got[key] != want {
			t.Errorf("%s is %#v, want %#v", key, got[key], want)
		}
	}
	if fmt.Sprint(got["strings"]) != "[a b]" {
		t.Errorf("strings is %v", got["strings"])
	}
}

func TestLogLinesAreEventsAndPassedOn(t *testing.T) {
	var buf bytes.Buffer
	ctx, recorder := record()
	ctx = log.WithLogger(ctx, vkslog.FromSlog(slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{AddSource: true}))))

	ctx, span := trace.StartSpan(ctx, "s")
	ctx = span.WithField(ctx, "pod", "ns/p")
	log.G(ctx).WithError(errors.New("boom")).WithField("n", 1).Warnf("try %d", 2)
	span.Logger().Debug("only in the span") // slog's default level is info
	span.End()

	lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
	if len(lines) != 1 {
		t.Fatalf("logged %q", buf.String())
	}
	for _, want := range []string{"level=WARN", `msg="try 2"`, "pod=ns/p", "error=boom", "n=1", "adapter_test.go:"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %s in %s", want, lines[0])
		}
	}

	events := recorder.Ended()[0].Events()
	if len(events) != 2 || events[0].Name != "try 2" || events[1].Name != "only in the span" {
		t.Fatalf("events are %v", events)
	}
	got := values(events[0].Attributes)
	for key, want := range map[string]any{"level": "warn", "pod": "ns/p", "error": "boom", "n": int64(1)} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	if level := values(events[1].Attributes)["level"]; level != "debug" {
		t.Errorf("level is %v", level)
	}
}

func TestEveryLevelOnceAndInTheInnermostSpan(t *testing.T) {
	var buf bytes.Buffer
	handler := slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug})
	ctx, recorder := record()
	ctx = log.WithLogger(ctx, vkslog.FromSlog(slog.New(handler)))
	ctx, outer := trace.StartSpan(ctx, "outer")
	ctx, inner := trace.StartSpan(ctx, "inner")
	l := log.G(inner.WithFields(ctx, nil))
	l.Debug("1")
	l.Debugf("%d", 2)
	l.Info("3")
	l.Infof("%d", 4)
	l.Warn("5")
	l.Warnf("%d", 6)
	l.Error("7")
	l.Errorf("%d", 8)
	inner.End()
	outer.End()
	for i, event := range recorder.Ended()[0].Events() {
		if event.Name != fmt.Sprint(i+1) {
			t.Errorf("event %d is %s", i, event.Name)
		}
	}
	for i, want := range []int{8, 0} {
		if n := len(recorder.Ended()[i].Events()); n != want {
			t.Errorf("%s has %d events, want %d", recorder.Ended()[i].Name(), n, want)
		}
	}
	if n := strings.Count(buf.String(), "\n"); n != 8 {
		t.Errorf("%d lines were logged, want 8", n)
	}
}

type unprintable struct{ t *testing.T }

func (u unprintable) String() string {
	u.t.Error("formatted though nobody looks")
	return ""
}

func TestUnsampledSpanFormatsNothing(t *testing.T) {
	ctx, _ := record(sdktrace.WithSampler(sdktrace.NeverSample()))
	ctx = log.WithLogger(ctx, log.FromSlog(slog.New(slog.DiscardHandler)))
	ctx, span := trace.StartSpan(ctx, "s")
	ctx = span.WithField(ctx, "k", unprintable{t})
	log.G(ctx).Infof("%s", unprintable{t})
	span.SetStatus(nil)
	span.End()
}
