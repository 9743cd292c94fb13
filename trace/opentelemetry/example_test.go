package opentelemetry_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/opentelemetry"
)

func ExampleAdapter() {
	exporter := tracetest.NewInMemoryExporter() // OTLP, in a real program
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))

	// Programs that set OpenTelemetry's global provider need only
	//	trace.T = opentelemetry.Adapter{}
	ctx := trace.WithTracer(context.Background(), opentelemetry.Adapter{TracerProvider: provider})

	ctx, span := trace.StartSpan(ctx, "CreatePod")
	span.WithField(ctx, "pod", "default/web")
	span.SetStatus(errdefs.NotFound("no such image"))
	span.End()

	for _, s := range exporter.GetSpans() {
		fmt.Println(s.Name, s.Status.Code, s.Status.Description)
	}
	// Output: CreatePod Error no such image
}
