package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

var (
	_ node.PodNotifier  = (*Provider)(nil)
	_ node.NodeProvider = (*Provider)(nil)
)

// NotifyPods has notify called with each pod whose status changes, until ctx ends.
func (p *Provider) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	p.service.Watch(func(t Task) {
		if t.Node == p.node && ctx.Err() == nil {
			notify(p.pod(t))
		}
	})
}

// Ping makes the node NotReady while the service is away.
func (p *Provider) Ping(ctx context.Context) error { return p.service.Healthy(ctx) }

// NotifyNodeStatus would report changes of the node, such as of its capacity. There are none.
func (p *Provider) NotifyNodeStatus(context.Context, func(*corev1.Node)) {}
