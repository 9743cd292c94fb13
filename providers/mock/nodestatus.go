package mock

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigureNode fills in what the provider knows of its node: resources,
// conditions, addresses, operating system, providerID. The rest of n stays as
// it is.
func (p *Provider) ConfigureNode(_ context.Context, n *corev1.Node) {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              p.cfg.CPU.DeepCopy(),
		corev1.ResourceMemory:           p.cfg.Memory.DeepCopy(),
		corev1.ResourcePods:             p.cfg.Pods.DeepCopy(),
		corev1.ResourceEphemeralStorage: p.cfg.EphemeralStorage.DeepCopy(),
	}
	for name, q := range p.cfg.Others {
		capacity[name] = q.DeepCopy()
	}
	n.Status.Capacity = capacity
	n.Status.Allocatable = capacity.DeepCopy()
	n.Status.Conditions = p.conditions()
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: p.cfg.HostIP},
		{Type: corev1.NodeHostName, Address: p.cfg.NodeName},
	}
	if p.cfg.KubeletPort != 0 {
		n.Status.DaemonEndpoints.KubeletEndpoint.Port = p.cfg.KubeletPort
	}
	n.Status.NodeInfo.OperatingSystem = p.cfg.OperatingSystem
	n.Status.NodeInfo.Architecture = p.cfg.Architecture
	if p.cfg.ProviderID != "" {
		n.Spec.ProviderID = p.cfg.ProviderID
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	maps.Copy(n.Labels, map[string]string{
		corev1.LabelOSStable:   p.cfg.OperatingSystem,
		corev1.LabelArchStable: p.cfg.Architecture,
	})
}

func (p *Provider) conditions() []corev1.NodeCondition {
	since := metav1.NewTime(p.started)
	list := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the mock provider is ready"},
	}
	for i := range list {
		list[i].LastHeartbeatTime, list[i].LastTransitionTime = since, since
	}
	return list
}

// Ping implements node.NodeProvider.
func (p *Provider) Ping(ctx context.Context) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.closed:
		return errClosed
	case p.pingErr != nil:
		return p.pingErr
	}
	return p.journal.failure()
}

// SetPingError makes Ping fail with err from now on, or succeed again with nil.
func (p *Provider) SetPingError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pingErr = err
}

// NotifyNodeStatus implements node.NodeProvider. Each call adds a receiver.
func (p *Provider) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodesSeq++
	id := p.nodesSeq
	p.nodes[id] = notify
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.nodes, id)
	})
}

// ReportNode passes n, as it is, to the callbacks of NotifyNodeStatus: a test
// says so that something about the node has changed.
func (p *Provider) ReportNode(n *corev1.Node) {
	p.mu.RLock()
	receivers := make([]func(*corev1.Node), 0, len(p.nodes))
	for _, notify := range p.nodes {
		receivers = append(receivers, notify)
	}
	p.mu.RUnlock()
	for _, notify := range receivers {
		notify(n.DeepCopy())
	}
}
