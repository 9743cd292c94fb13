package nodeutil

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// nodeMetrics are the metrics of one node, or of several that are measured as
// one: under the kubelet's names where a kubelet has them. Those of the process
// are in the registry that all Kubernetes components share, where main and their libraries
// register them; these are not, since one process may run several nodes. Only kubelet_node_name has a label for the
// node, so that a thousand nodes are not a thousand histograms.
type nodeMetrics struct {
	registry    *prometheus.Registry
	controllers *node.Metrics
	requests    *requestMetrics
	starts      *startMetrics
	serving     servingLife // of the port that all nodes share, if there is one

	mu    sync.Mutex
	nodes []*measuredNode
}

// measuredNode is what the metrics need to know of a node.
type measuredNode struct {
	name    string
	pods    corev1listers.PodLister
	health  *nodeHealth
	serving *servingLife
}

func newNodeMetrics() *nodeMetrics {
	m := &nodeMetrics{
		registry:    prometheus.NewRegistry(),
		controllers: node.NewMetrics(),
		requests:    newRequestMetrics(),
		starts:      newStartMetrics(),
	}
	m.registry.MustRegister(m.controllers, m.requests, m.starts, nodesCollector{m})
	return m
}

// add has a node measured until the function that it returns is called.
func (m *nodeMetrics) add(n *measuredNode) (remove func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = append(m.nodes, n)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.nodes = slices.DeleteFunc(m.nodes, func(other *measuredNode) bool { return other == n })
	}
}

// measured are the nodes of the moment.
func (m *nodeMetrics) measured() []*measuredNode {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.nodes)
}

// processStart has only the start of the process.
func processStart() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "process_start_time_seconds",
		Help: "[ALPHA] Start time of the process since unix epoch in seconds."}, func() float64 {
		start, _ := metrics.GetProcessStart()
		return start
	}))
	return registry
}
