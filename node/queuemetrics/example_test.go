package queuemetrics_test

import (
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/queuemetrics"
)

// A program that makes its PodControllers itself shows their queues on its
// /metrics with workers that it gives to each of them.
func Example() {
	workers := node.NewWorkers(100, node.WithQueueMetrics(queuemetrics.Provider()))
	_ = node.PodControllerConfig{Workers: workers}

	_ = legacyregistry.Handler() // serves what it has of them
}
