package main

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// managedCluster is how a node is made known to the controllers of a cloud's clusters, for which
// each Node is a machine of its own: docs/managed-clusters.md has the reasons.
type managedCluster struct {
	labels map[string]string
	// providerID returns one that the cluster autoscaler takes for a node of no node group, and the cloud
	// controller manager for none that it could ask the cloud about: a node that is not ready is deleted if
	// the cloud does not know it.
	providerID func(nodeName string) string
}

var managedClusters = map[string]managedCluster{
	"aks": {
		// The cloud provider then takes the node for one that exists, has no routes and is behind no load balancer.
		labels:     map[string]string{"kubernetes.azure.com/managed": "false"},
		providerID: func(name string) string { return "virtual-kubelet://" + name },
	},
	"eks": {
		// The cluster's DaemonSets (aws-node, kube-proxy) have no pods on such nodes.
		labels: map[string]string{"eks.amazonaws.com/compute-type": "fargate"},
		// What follows the last slash must not begin as an instance does, nor have dots.
		providerID: func(name string) string { return "aws:////virtual-kubelet-" + strings.ReplaceAll(name, ".", "-") },
	},
	"gke": {
		// Three parts, of which the project and the zone are empty.
		providerID: func(name string) string { return "gce:////" + name },
	},
}

func managedClusterNames() []string { return slices.Sorted(maps.Keys(managedClusters)) }

// applyTo changes a node that is to be registered. The zero cluster changes nothing.
func (c managedCluster) applyTo(n *corev1.Node) {
	maps.Copy(n.Labels, c.labels)
	if c.providerID != nil {
		n.Spec.ProviderID = c.providerID(n.Name)
	}
}
