package admission

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// amounts are quantities by resource: thousandths of a CPU, and whole units of all
// others, as a kubelet counts and reports them.
type amounts map[corev1.ResourceName]int64

func amountOf(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, q := range list {
		a[name] = amountOf(name, q)
	}
	return a
}

// usage is what a pod takes of a node. It is kept for as long as the pod runs: lists take much less memory
// than maps.
type usage struct {
	requests []request // in the order in which they are checked
	ports    []port
}

// request is what a pod asks for of a resource.
type request struct {
	name   corev1.ResourceName
	amount int64
}

// first are the resources of which a kubelet complains first, in this order.
var first = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

func requestsOf(list corev1.ResourceList) []request {
	requests := make([]request, 0, len(list))
	for name, q := range list {
		requests = append(requests, request{name, amountOf(name, q)})
	}
	rank := func(name corev1.ResourceName) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortFunc(requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(rank(a.name), rank(b.name)), cmp.Compare(a.name, b.name))
	})
	return requests
}

// usageOf returns what a pod takes: as much as it asks for, or, while a resize is
// under way, as it has.
func usageOf(pod *corev1.Pod) usage {
	requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{UseStatusResources: true})
	return usage{requestsOf(requests), hostPorts(pod)}
}

// port is a port of the node's addresses.
type port struct {
	ip       string
	protocol corev1.Protocol
	number   int32
}

// anyIP is the address of a port of all addresses.
const anyIP = "0.0.0.0"

// hostPorts returns the ports of the node that a pod has for as long as it runs, and
// so not those of init containers that end.
func hostPorts(pod *corev1.Pod) (ports []port) {
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			found := port{p.HostIP, p.Protocol, p.HostPort}
			if found.ip == "" {
				found.ip = anyIP
			}
			if found.protocol == "" {
				found.protocol = corev1.ProtocolTCP
			}
			ports = append(ports, found)
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return ports
}

// clash reports whether two pods cannot have one port each.
func (p port) clash(q port) bool {
	return p.number == q.number && p.protocol == q.protocol && (p.ip == q.ip || p.ip == anyIP || q.ip == anyIP)
}
