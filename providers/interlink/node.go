package interlink

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// The taint and the label by which pods choose nodes of interLink. The taint goes instead
// of taintOfBinary, which pods of interLink's users do not tolerate.
const (
	taintKey      = "virtual-node.interlink/no-schedule"
	labelType     = "virtual-node.interlink/type"
	taintOfBinary = "virtual-kubelet.io/provider"
)

// modelLabels are labels with the model of an accelerator.
var modelLabels = map[string]string{
	"nvidia.com/gpu": "nvidia-gpu-type", "xilinx.com/fpga": "xilinx-fpga-type", "intel.com/fpga": "intel-fpga-type",
}

// configureNode sets labels, taints and the provider ID of the node.
func (c *Config) configureNode(n *corev1.Node) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[labelType] = "virtual-kubelet"
	for _, a := range c.Resources.Accelerators {
		if key := modelLabels[strings.ToLower(a.ResourceType)]; key != "" && a.Model != "" {
			n.Labels[key] = a.Model
		}
	}
	for _, label := range c.NodeLabels {
		key, value, _ := strings.Cut(label, "=")
		n.Labels[key] = value
	}
	n.Spec.ProviderID = cmp.Or(n.Spec.ProviderID, "external:///"+n.Name)
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintOfBinary })
	addTaint(n, corev1.Taint{Key: taintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	for _, t := range c.NodeTaints {
		addTaint(n, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
}

// addTaint adds a taint, instead of one with that key and effect.
func addTaint(n *corev1.Node, taint corev1.Taint) {
	n.Spec.Taints = append(slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }), taint)
}

// capacity returns that of the configuration.
func (c *Config) capacity() corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU: *c.Resources.CPU, corev1.ResourceMemory: *c.Resources.Memory, corev1.ResourcePods: *c.Resources.Pods,
	}
	for _, a := range c.Resources.Accelerators {
		addTo(list, a.ResourceType, a.Available)
	}
	return list
}

func addTo(list corev1.ResourceList, name string, more resource.Quantity) {
	sum := list[corev1.ResourceName(name)]
	sum.Add(more)
	list[corev1.ResourceName(name)] = sum
}

// Report implements podgroup.Reporter: the resources and taints that the plugin reports go
// before those of the configuration.
func (b *backend) Report(ctx context.Context, n *corev1.Node) error {
	answer, err := b.ping(ctx)
	if err != nil {
		return err
	}
	r := answer.Resources
	for name, quantity := range map[corev1.ResourceName]*resource.Quantity{corev1.ResourceCPU: r.CPU, corev1.ResourceMemory: r.Memory, corev1.ResourcePods: r.Pods} {
		if quantity != nil && quantity.Sign() >= 0 {
			n.Status.Capacity[name], n.Status.Allocatable[name] = *quantity, *quantity
		}
	}
	accelerators := corev1.ResourceList{}
	for _, a := range r.Accelerators {
		if a.ResourceType != "" && a.Available.Sign() >= 0 {
			addTo(accelerators, a.ResourceType, a.Available)
		}
	}
	for name, quantity := range accelerators {
		n.Status.Capacity[name], n.Status.Allocatable[name] = quantity, quantity
	}
	for _, t := range answer.Taints {
		if t.Effect == "" {
			t.Effect = corev1.TaintEffectNoSchedule
		}
		if !isTaint(t.Key, t.Value, t.Effect) {
			log.G(ctx).WithField("taint", fmt.Sprintf("%.100q", t.Key)).Warn("Ignoring a taint of interLink's ping that is not valid")
			continue
		}
		addTaint(n, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return nil
}

// ping asks whether the server and the plugin are there. Plugins may answer with text,
// which says nothing.
func (b *backend) ping(ctx context.Context) (answer wire.Ping, err error) {
	var text []byte
	if err := b.Do(ctx, call(podgroup.ActionReport, http.MethodPost, "/pinglink", nil), &text); err != nil {
		return wire.Ping{}, err
	}
	if json.Unmarshal(text, &answer) != nil {
		return wire.Ping{}, nil
	}
	return answer, nil
}
