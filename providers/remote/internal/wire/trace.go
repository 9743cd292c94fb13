package wire

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc/metadata"
)

// The span of a call travels as its metadata traceparent and tracestate (W3C Trace Context).
var traceContext propagation.TraceContext

// WithTrace returns a context for a call of which the server learns the span of ctx.
func WithTrace(ctx context.Context) context.Context {
	span := propagation.MapCarrier{}
	traceContext.Inject(ctx, span)
	for key, value := range span {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	return ctx
}

// TraceOf returns a context in which new spans belong to that of the caller, if there is one.
func TraceOf(ctx context.Context) context.Context {
	span := propagation.MapCarrier{}
	for _, key := range traceContext.Fields() {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) == 1 {
			span[key] = values[0]
		}
	}
	return traceContext.Extract(ctx, span)
}
