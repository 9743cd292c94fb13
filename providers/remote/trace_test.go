package remote_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// tracing writes down in which trace it is called.
type tracing struct {
	*rich
	seen chan trace.TraceID
}

func (t *tracing) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	t.seen <- trace.SpanContextFromContext(ctx).TraceID()
	return t.rich.CreatePod(ctx, pod)
}

func (t *tracing) GetContainerLogs(ctx context.Context, _, _, _ string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
	t.seen <- trace.SpanContextFromContext(ctx).TraceID()
	return nil, errors.New("there is no log")
}

// What the provider does for a call is in the trace of the call, and in none without one.
func TestTracesGoAcross(t *testing.T) {
	t.Parallel()
	provider := &tracing{&rich{plain: newPlain()}, make(chan trace.TraceID, 1)}
	p, _, _ := connect(t, serve(t, serverOf(t, provider, provider)))
	for _, want := range []trace.TraceID{{1, 2, 3}, {}} {
		ctx := t.Context()
		if want.IsValid() {
			ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: want, SpanID: trace.SpanID{4}, TraceFlags: trace.FlagsSampled}))
		}
		if err := p.CreatePod(ctx, aPod("web")); err != nil {
			t.Fatal(err)
		}
		if got := <-provider.seen; got != want {
			t.Errorf("CreatePod was called in trace %v, want %v", got, want)
		}
		if _, err := p.GetContainerLogs(ctx, "default", "web", "main", api.ContainerLogOpts{}); err == nil {
			t.Error("there is a log")
		}
		if got := <-provider.seen; got != want {
			t.Errorf("GetContainerLogs was called in trace %v, want %v", got, want)
		}
	}
}
