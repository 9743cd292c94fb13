//go:build integration

package integration

import (
	"io"
	"net/http"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spanCollector receives spans, as OTLP over HTTP has it.
type spanCollector struct {
	mu    sync.Mutex
	spans []*tracepb.Span
}

func (c *spanCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "no traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// traceWith returns the spans of the trace that has one of this name for which
// chosen holds; none if there is no such trace.
func (c *spanCollector) traceWith(name string, chosen func(*tracepb.Span) bool) (spans []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var id string
	for _, span := range c.spans {
		if span.GetName() == name && chosen(span) {
			id = string(span.GetTraceId())
		}
	}
	for _, span := range c.spans {
		if id != "" && string(span.GetTraceId()) == id {
			spans = append(spans, span)
		}
	}
	return spans
}

// attributeOf is the text of an attribute.
func attributeOf(span *tracepb.Span, key string) string {
	for _, a := range span.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}
