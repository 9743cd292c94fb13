package queuemetrics_test

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/queuemetrics"
)

// A program that makes its PodControllers itself shows their queues on its
// /metrics with workers that it gives to each of them.
func Example() {
	registry := prometheus.NewRegistry()
	workers := node.NewWorkers(100, node.WithQueueMetrics(queuemetrics.New(registry)))
	_ = node.PodControllerConfig{Workers: workers}

	_ = promhttp.HandlerFor(registry, promhttp.HandlerOpts{}) // serves what it has of them
}
