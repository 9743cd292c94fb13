package nodeutil

import (
	"context"
	"errors"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodeaddress"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// defaultPods is how many pods a kubelet takes by default.
const defaultPods = 110

// setAddresses fills in the addresses of a node that has none, so that the API server
// can reach its kubelet API: the address from which the API server is reached, and
// the name. Where that cannot be found out, as the name of the API server cannot be
// resolved yet, it is some address of the machine, so that nothing waits here. A machine
// without an address but loopback has a node without one.
func setAddresses(n *corev1.Node, client kubernetes.Interface) {
	if len(n.Status.Addresses) > 0 {
		return
	}
	logger := log.G(context.Background()).WithField("node", n.Name)
	ip, err := nodeaddress.Towards(context.Background(), serverOf(client), nil)
	if errors.Is(err, nodeaddress.ErrUnreachable) {
		reason := err
		if ip, err = nodeaddress.Own(); err == nil {
			logger.WithError(reason).WithField("address", ip.String()).Warn("Node gets some address of this machine, at which kubectl logs and exec may not reach it: set NodeSpec.Status.Addresses, or make the node when the API server can be reached")
		}
	}
	if err != nil {
		logger.WithError(err).Warn("Node has no address, so kubectl logs and exec cannot reach it: set NodeSpec.Status.Addresses")
		return
	}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: ip.String()},
		{Type: corev1.NodeHostName, Address: n.Name},
	}
}

// serverOf is the URL of the API server; empty for a client that has none.
func serverOf(client kubernetes.Interface) string {
	if c, ok := client.CoreV1().RESTClient().(*rest.RESTClient); ok && c != nil {
		return c.Get().URL().String()
	}
	return ""
}

// setCapacity fills in what a node offers that has no capacity, since the scheduler
// binds no pod to such a node. Where the provider has no say in the node, that is what
// the machine has. One that has may say it later; until then the node takes no pods.
func setCapacity(n *corev1.Node, provider node.NodeProvider) {
	switch {
	case len(n.Status.Capacity) > 0 || len(n.Status.Allocatable) > 0:
		return
	case !reportsNothing(provider):
		log.G(context.Background()).WithField("node", n.Name).Warn("Node has no capacity, so it gets no pods until the provider reports one: set NodeSpec.Status.Capacity, or report it by NotifyNodeStatus")
		return
	}
	n.Status.Capacity = machineCapacity()
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
}

// reportsNothing reports whether the provider cannot report anything about the node.
func reportsNothing(provider node.NodeProvider) bool {
	switch provider.(type) {
	case nil, node.NaiveNodeProvider, *node.NaiveNodeProvider:
		return true
	}
	return false
}

// machineCapacity is what this machine has, and the number of pods of a kubelet.
func machineCapacity() corev1.ResourceList {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourcePods: *resource.NewQuantity(defaultPods, resource.DecimalSI),
	}
	if bytes := machineMemory(); bytes > 0 {
		capacity[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return capacity
}
