//go:build !race

package runtimemetrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
)

// What it costs to measure a call.
func TestAllocations(t *testing.T) {
	runtime, _ := measured(t, prometheus.NewRegistry(), &fake{})
	allocs.Compare(t, allocs.Operation{Name: "call", Do: func() { _, _ = runtime.ContainerStatus(t.Context(), "c", false) }})
}
