package podenv

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	componentresource "k8s.io/component-helpers/resource"
)

// overcommitted are the resources whose limit, where none is set, is what the
// pod or the node has. Huge pages never are.
var overcommitted = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
}

// resource returns the value of a resourceFieldRef of container c.
func (r *resolver) resource(c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		other := r.findContainer(ref.ContainerName)
		if other == nil {
			return "", fmt.Errorf("container %q not found", ref.ContainerName)
		}
		c = other
	}
	return inUnits(ref, corev1.ResourceRequirements{Requests: c.Resources.Requests, Limits: r.limits(c)})
}

// inUnits returns the limit or request that ref names, in units of its divisor
// (1 without one), rounded up. What is not set is 0.
func inUnits(ref *corev1.ResourceFieldSelector, resources corev1.ResourceRequirements) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	var list corev1.ResourceList
	switch kind {
	case "limits":
		list = resources.Limits
	case "requests":
		list = resources.Requests
	default:
		return "", unsupportedResource(ref)
	}
	q, divisor := list[corev1.ResourceName(name)], ref.Divisor
	if divisor.IsZero() {
		divisor = apiresource.MustParse("1")
	}
	of := (*apiresource.Quantity).Value
	switch {
	case name == string(corev1.ResourceCPU):
		of = (*apiresource.Quantity).MilliValue
	case name == string(corev1.ResourceMemory), name == string(corev1.ResourceEphemeralStorage),
		strings.HasPrefix(name, corev1.ResourceHugePagesPrefix):
	default:
		return "", unsupportedResource(ref)
	}
	return strconv.FormatInt(int64(math.Ceil(float64(of(&q))/float64(of(&divisor)))), 10), nil
}

func unsupportedResource(ref *corev1.ResourceFieldSelector) error {
	return fmt.Errorf("unsupported container resource %q", ref.Resource)
}

func (r *resolver) findContainer(name string) *corev1.Container {
	for i := range r.pod.Spec.Containers {
		if c := &r.pod.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	for i := range r.pod.Spec.InitContainers {
		if c := &r.pod.Spec.InitContainers[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// limits returns the limits that hold for c: its own, or the pod's, or the
// node's.
func (r *resolver) limits(c *corev1.Container) corev1.ResourceList {
	limits := c.Resources.Limits.DeepCopy()
	if limits == nil {
		limits = corev1.ResourceList{}
	}
	for _, name := range overcommitted {
		if q, ok := limits[name]; ok && !q.IsZero() {
			continue
		}
		if q, ok := r.podLimit(name); ok {
			limits[name] = q
		} else if q, ok := r.opts.NodeAllocatable[name]; ok {
			limits[name] = q
		}
	}
	return limits
}

func (r *resolver) podLimit(name corev1.ResourceName) (q apiresource.Quantity, ok bool) {
	if r.pod.Spec.Resources == nil || !componentresource.IsSupportedPodLevelResource(name) {
		return q, false
	}
	q, ok = r.pod.Spec.Resources.Limits[name]
	return q, ok && !q.IsZero()
}
