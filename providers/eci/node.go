package eci

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ephemeralStorage is the node's capacity. Each container group has some for free, so
// the number only has to be large.
const ephemeralStorage = "40Ti"

// configureNode sets capacity, conditions, system information and labels of the node.
func (p *Provider) configureNode(n *corev1.Node) {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              p.cfg.CPU.DeepCopy(),
		corev1.ResourceMemory:           p.cfg.Memory.DeepCopy(),
		corev1.ResourcePods:             p.cfg.Pods.DeepCopy(),
		corev1.ResourceEphemeralStorage: resource.MustParse(ephemeralStorage),
	}
	if !p.cfg.GPU.IsZero() {
		capacity[resourceGPU] = p.cfg.GPU.DeepCopy()
	}
	n.Status.Capacity, n.Status.Allocatable = capacity, capacity.DeepCopy()
	n.Status.Conditions = nodeConditions(metav1.Now())
	n.Status.NodeInfo.OperatingSystem = cmp.Or(p.cfg.OperatingSystem, n.Status.NodeInfo.OperatingSystem, "linux")
	n.Status.NodeInfo.Architecture = cmp.Or(n.Status.NodeInfo.Architecture, "amd64")
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelOSStable] = n.Status.NodeInfo.OperatingSystem
	n.Labels[corev1.LabelArchStable] = n.Status.NodeInfo.Architecture
	n.Labels[corev1.LabelTopologyRegion] = p.cfg.Region
	if p.cfg.Zone != "" {
		n.Labels[corev1.LabelTopologyZone] = p.cfg.Zone
	}
}

func nodeConditions(since metav1.Time) []corev1.NodeCondition {
	list := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "ECI has its own quotas"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "each container group has its own disk"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "each container group has its own machine"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the ECI provider is ready"},
	}
	for i := range list {
		list[i].LastHeartbeatTime, list[i].LastTransitionTime = since, since
	}
	return list
}

// Ping implements node.NodeProvider. The node is healthy while its container groups can
// be listed; throttling does not count as a failure.
func (p *Provider) Ping(ctx context.Context) error {
	_, err := p.groups.all(ctx)
	if isThrottled(err) {
		return nil
	}
	return err
}

// NotifyNodeStatus implements node.NodeProvider. The node does not change.
func (p *Provider) NotifyNodeStatus(context.Context, func(*corev1.Node)) {}
