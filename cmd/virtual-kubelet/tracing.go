package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/opentelemetry"
)

// flushTimeout bounds the last export at shutdown.
const flushTimeout = 5 * time.Second

// setUpTracing starts the exporter that the flags name, and returns what stops
// it, having sent what is left.
func setUpTracing(ctx context.Context, o *options, stdout io.Writer) (stop func(), err error) {
	var exporter sdktrace.SpanExporter
	switch o.traceExporter {
	case "none":
		return func() {}, nil
	case "stdout":
		exporter, err = stdouttrace.New(stdouttrace.WithWriter(stdout))
	case "otlp":
		exporter, err = autoexport.NewSpanExporter(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot export traces with %s: %w", o.traceExporter, err)
	}
	sampler, err := o.sampler()
	if err != nil {
		return nil, err
	}
	attributes := []attribute.KeyValue{
		attribute.String("service.name", o.traceServiceName),
		attribute.String("k8s.node.name", o.nodeName),
	}
	for key, value := range o.traceTags {
		attributes = append(attributes, attribute.String(key, value))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithSampler(sampler),
		sdktrace.WithResource(resource.NewSchemaless(attributes...)))
	otel.SetTracerProvider(provider)
	trace.T = opentelemetry.Adapter{}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot send the last traces")
		}
	}, nil
}

func (o *options) sampler() (sdktrace.Sampler, error) {
	switch o.traceSampleRate {
	case "always":
		return sdktrace.AlwaysSample(), nil
	case "never":
		return sdktrace.NeverSample(), nil
	}
	percent, err := strconv.ParseFloat(o.traceSampleRate, 64)
	if err != nil || percent < 0 || percent > 100 {
		return nil, fmt.Errorf("--trace-sample-rate is %q: use a percentage from 0 to 100, always, or never", o.traceSampleRate)
	}
	return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(percent / 100)), nil
}
