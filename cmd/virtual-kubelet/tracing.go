package main

import (
	"context"
	"fmt"
	"io"
	"os"
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

// traceExporter returns the exporter that OpenTelemetry's environment variables select, and
// whether they do.
func traceExporter(getenv func(string) string) (exporter string, set bool) {
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case getenv("OTEL_SDK_DISABLED") == "true":
		return "none", true
	case exporter == "console":
		return "stdout", true
	case exporter != "":
		return exporter, true
	case getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "", getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "":
		return "otlp", true
	}
	return "", false
}

// setUpTracing starts the exporter of the flags or, without them, of OpenTelemetry's
// environment variables. It returns a function that sends what is left, and stops it.
func setUpTracing(ctx context.Context, o *options, stdout io.Writer) (stop func(), err error) {
	if o.traceExporter == "none" {
		return func() {}, nil
	}
	exporter, err := newExporter(ctx, o.traceExporter, stdout)
	if err != nil {
		return nil, fmt.Errorf("cannot export traces with %s: %w", o.traceExporter, err)
	}
	about, err := o.traceResource(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot describe this process in traces (see OTEL_RESOURCE_ATTRIBUTES): %w", err)
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)}
	if o.traceSampleRate != "" || o.getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(&o.live.traces))
	} // else the library reads the variable, which no file can change
	provider := sdktrace.NewTracerProvider(options...)
	otel.SetTracerProvider(provider)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.G(ctx).WithError(err).Warn("Cannot send traces")
	}))
	trace.T = opentelemetry.Adapter{}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot send the last traces")
		}
	}, nil
}

// newExporter makes the named exporter.
func newExporter(ctx context.Context, name string, stdout io.Writer) (sdktrace.SpanExporter, error) {
	if name == "stdout" {
		return stdouttrace.New(stdouttrace.WithWriter(stdout))
	}
	// autoexport reads the variable alone, which the flag overrides.
	if err := os.Setenv("OTEL_TRACES_EXPORTER", name); err != nil {
		return nil, err
	}
	return autoexport.NewSpanExporter(ctx)
}

// traceResource describes this process in all spans.
func (o *options) traceResource(ctx context.Context) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{attribute.String("service.name", o.traceServiceName)}
	for key, value := range o.traceTags {
		attributes = append(attributes, attribute.String(key, value))
	}
	return resource.New(ctx, resource.WithAttributes(attribute.String("k8s.node.name", o.nodeName)),
		resource.WithFromEnv(), resource.WithAttributes(attributes...))
}

// sampler returns that of the flag, or without one the library's default.
func (o *options) sampler() sdktrace.Sampler {
	switch o.traceSampleRate {
	case "":
		return sdktrace.ParentBased(sdktrace.AlwaysSample())
	case "always":
		return sdktrace.AlwaysSample()
	case "never":
		return sdktrace.NeverSample()
	}
	percent, _ := strconv.ParseFloat(o.traceSampleRate, 64) // see checkSampleRate
	return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(percent / 100))
}
