package machine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// TypeAnnotation is the annotation of a pod that names the type of its machine.
const TypeAnnotation = "machine.virtual-kubelet.io/type"

// TypeConfig is a type of machines.
type TypeConfig struct {
	// Name is what the driver calls it: letters, digits, dots, hyphens and underscores, at most
	// 63. Required.
	Name string `json:"name"`
	// CPU and Memory are what a pod in such a machine can request at the most. Required.
	CPU    *resource.Quantity `json:"cpu"`
	Memory *resource.Quantity `json:"memory"`
	// Resources are the others that it has, such as nvidia.com/gpu. A pod that requests one that
	// is not here gets a machine of another type.
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Price is in any unit. All types have one, and pods get the cheapest that fits; or none has,
	// and pods get the first.
	Price *resource.Quantity `json:"price,omitempty"`
	// Arguments are for the driver.
	Arguments map[string]string `json:"arguments,omitempty"`
	// Warm is how many machines of this type are in reserve: started, without a pod. Defaults to 0.
	Warm int `json:"warm,omitempty"`
}

var typeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// completeTypes checks the types, brings them into the order in which they are tried, and sets the
// node's capacity of their other resources.
func (c *Config) completeTypes(checks *config.Checks) {
	names, most := map[string]bool{}, corev1.ResourceList{}
	priced := 0
	for i := range c.Types {
		t := &c.Types[i]
		at := fmt.Sprintf("types[%d]", i)
		checks.That(typeName.MatchString(t.Name), "%s.name: %q is no name of letters, digits, dots, hyphens and underscores, at most 63", at, t.Name)
		checks.That(!names[t.Name], "%s.name: there is another type %q", at, t.Name)
		names[t.Name] = true
		checks.That(t.CPU != nil && t.CPU.Sign() > 0, "%s.cpu: it is required: what a pod in such a machine can request at the most", at)
		checks.That(t.Memory != nil && t.Memory.Sign() > 0, "%s.memory: it is required: what a pod in such a machine can request at the most", at)
		for name, quantity := range t.Resources {
			field := fmt.Sprintf("%s.resources[%s]", at, name)
			checks.That(name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourcePods, "%s: it is none of the other resources", field)
			checks.That(quantity.Sign() > 0, "%s: %s is not positive", field, quantity.String())
			if largest, ok := most[name]; !ok || largest.Cmp(quantity) < 0 {
				most[name] = quantity
			}
		}
		if t.Price != nil {
			priced++
			checks.That(t.Price.Sign() >= 0, "%s.price: %s is negative", at, t.Price)
		}
	}
	checks.That(priced == 0 || priced == len(c.Types), "types: %d of %d have a price: all have one, or none", priced, len(c.Types))
	if priced == len(c.Types) {
		c.Types = slices.Clone(c.Types) // which are the caller's
		slices.SortStableFunc(c.Types, func(a, b TypeConfig) int { return a.Price.Cmp(*b.Price) })
	}
	capacity := corev1.ResourceList{}
	for name, quantity := range most {
		if c.Pods != nil && quantity.Mul(c.Pods.Value()) {
			capacity[name] = quantity
		}
	}
	for name, quantity := range c.Resources {
		_, ok := most[name]
		checks.That(ok, "resources[%s]: no type has it", name)
		checks.That(quantity.Sign() >= 0, "resources[%s]: %s is negative", name, quantity.String())
		capacity[name] = quantity
	}
	c.Resources = capacity
}

// typeOf returns the type of the machine of a pod: the one that the pod names, or the first that
// has all that it requests; nil if there is no table of types. Otherwise why says what no type has.
func (c *Config) typeOf(pod *corev1.Pod) (chosen *TypeConfig, why string) {
	if len(c.Types) == 0 {
		return nil, ""
	}
	types, requests := c.Types, podspec.Requests(pod)
	if name, ok := pod.Annotations[TypeAnnotation]; ok {
		i := slices.IndexFunc(types, func(t TypeConfig) bool { return t.Name == name })
		if i < 0 {
			return nil, fmt.Sprintf("a type %q of machines, which the annotation %s names", clip(name, 100), TypeAnnotation)
		}
		types = types[i : i+1]
	}
	for i := range types {
		if len(types[i].lacks(requests)) == 0 {
			return &types[i], ""
		}
	}
	return nil, shortage(types, requests)
}

// shortage says why none of these types has all that is requested: the resources of which each has
// too little or, if there are none, what each lacks.
func shortage(types []TypeConfig, requests corev1.ResourceList) string {
	var short []string
	for name, quantity := range requests {
		var most resource.Quantity
		for i := range types {
			if has := types[i].amount(name); has.Cmp(most) > 0 {
				most = has
			}
		}
		if quantity.Cmp(most) > 0 {
			short = append(short, fmt.Sprintf("%s of %s, of which the largest has %s", quantity.String(), name, most.String()))
		}
	}
	if len(short) == 0 {
		for i := range types {
			short = append(short, fmt.Sprintf("%s has too little %s", types[i].Name, strings.Join(types[i].lacks(requests), " and ")))
		}
	}
	slices.Sort(short)
	if len(types) == 1 {
		return fmt.Sprintf("in the type %s of machines: %s", types[0].Name, strings.Join(short, "; "))
	}
	return "a type of machines with all that the pod requests: " + strings.Join(short, "; ")
}

// lacks returns the names of the resources of which a machine has less than requested.
func (t *TypeConfig) lacks(requests corev1.ResourceList) (names []string) {
	for name, quantity := range requests {
		if has := t.amount(name); quantity.Cmp(has) > 0 {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}

// amount is how much a machine has of a resource.
func (t *TypeConfig) amount(name corev1.ResourceName) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *t.CPU
	case corev1.ResourceMemory:
		return *t.Memory
	}
	return t.Resources[name]
}
