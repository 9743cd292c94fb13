package opencensus_test

import (
	"context"
	"fmt"

	octrace "go.opencensus.io/trace"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/opencensus"
)

type printer struct{}

func (printer) ExportSpan(s *octrace.SpanData) {
	fmt.Println(s.Name, s.Status.Code, s.Status.Message)
}

func ExampleAdapter() {
	octrace.RegisterExporter(printer{})
	defer octrace.UnregisterExporter(printer{})

	// The caller decides what is sampled: here, all.
	ctx, _ := octrace.StartSpan(context.Background(), "root", octrace.WithSampler(octrace.AlwaysSample()))

	// Programs assign it once: trace.T = opencensus.Adapter{}
	ctx = trace.WithTracer(ctx, opencensus.Adapter{})
	_, span := trace.StartSpan(ctx, "CreatePod")
	span.SetStatus(errdefs.NotFound("no such image"))
	span.End()
	// Output: CreatePod 5 no such image
}
