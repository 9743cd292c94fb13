package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
)

// The metrics of Go programs, and of kubelets, that are read.
const (
	allocatedBytes   = "go_memstats_alloc_bytes_total"
	allocatedObjects = "go_memstats_mallocs_total"
	heapBytes        = "go_memstats_heap_alloc_bytes"
	goroutines       = "go_goroutines"
	podsHeld         = "kubelet_running_pods"
)

// metricsOf returns the agent's metrics, nil if it serves none.
func (r *rig) metricsOf(ctx context.Context, p *running) (gauge.Metrics, error) {
	if p.metrics == "" {
		return nil, nil
	}
	return gauge.ReadMetrics(ctx, "http://"+p.metrics+"/metrics")
}

// collected has the agent collect its garbage, and then returns its metrics.
// Without those of the heap if it cannot be made to.
func (r *rig) collected(ctx context.Context, p *running) (gauge.Metrics, error) {
	collects := r.collect(ctx, p)
	m, err := r.metricsOf(ctx, p)
	if !collects {
		delete(m, heapBytes)
	}
	return m, err
}

// collect has a Go program collect its garbage, by asking for a profile where it
// serves metrics, or through the kubelet API of its node.
func (r *rig) collect(ctx context.Context, p *running) bool {
	const query = "/debug/pprof/heap?gc=1"
	if p.metrics == "" {
		return false
	}
	if request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+query, nil); err == nil {
		if response, err := http.DefaultClient.Do(request); err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode == http.StatusOK {
				return true
			}
		}
	}
	for range 5 { // the API server forbids much for a moment after its start
		if _, err := r.profileOf(ctx, p.nodes[0], query); err == nil {
			return true
		}
		if sleep(ctx, time.Second) != nil {
			return false
		}
	}
	return false
}

// profileOf reads a profile of a node's agent through the API server.
func (r *rig) profileOf(ctx context.Context, node, query string) ([]byte, error) {
	data, err := r.client.CoreV1().RESTClient().Get().RequestURI("/api/v1/nodes/"+node+"/proxy"+query).SetHeader("Accept", "*/*").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read a profile of node %s: %w", node, err)
	}
	return data, nil
}
