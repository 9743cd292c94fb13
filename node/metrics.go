package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
)

// Metrics counts and times what controllers ask of their providers, and what
// they do for pods. It is a prometheus.Collector, for the caller to register.
// Any number of controllers can share one, as they do where a process runs many
// nodes: no label names a node or a pod. A nil Metrics measures nothing. Make
// one with NewMetrics; its methods are safe for concurrent use.
type Metrics struct{ of *providercalls.Metrics }

// NewMetrics makes a Metrics that has measured nothing yet.
func NewMetrics() *Metrics { return &Metrics{providercalls.NewMetrics()} }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) { m.of.Describe(descs) }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(found chan<- prometheus.Metric) { m.of.Collect(found) }

// calls is what measures; nil where nothing does.
func (m *Metrics) calls() *providercalls.Metrics {
	if m == nil {
		return nil
	}
	return m.of
}

var _ prometheus.Collector = (*Metrics)(nil)
