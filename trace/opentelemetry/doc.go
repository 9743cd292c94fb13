// Package opentelemetry lets the library trace through OpenTelemetry. Exporters
// and sampling are those of the application's TracerProvider.
package opentelemetry
