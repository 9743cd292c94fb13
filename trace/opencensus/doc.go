// Package opencensus lets the library trace through go.opencensus.io, for
// programs that still do. Exporters and sampling are those of
// go.opencensus.io/trace. New programs take package opentelemetry.
package opencensus
