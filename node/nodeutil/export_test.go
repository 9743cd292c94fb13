package nodeutil

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// RoutesOf are the routes that AttachProviderRoutes serves.
func RoutesOf(n *Node, p Provider) []api.Route {
	return n.routes(p, corev1listers.NewPodLister(n.podInformer.GetIndexer()), prometheus.NewRegistry())
}

// IndexerOf is what the pod informer of a node knows.
func IndexerOf(n *Node) cache.Indexer { return n.podInformer.GetIndexer() }
