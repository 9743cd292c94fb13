package podgroup

import (
	"cmp"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// report is the last report of a Reporter.
type report struct {
	mu     sync.Mutex
	base   *corev1.Node // as it was made at the start
	last   *corev1.Node
	notify func(*corev1.Node)
}

// configureNode sets capacity, conditions, system information and labels of the node,
// where the backend's package has not.
func (p *Provider) configureNode() {
	n := p.init.Node
	if len(p.opts.Capacity) > 0 {
		n.Status.Capacity, n.Status.Allocatable = p.opts.Capacity.DeepCopy(), p.opts.Capacity.DeepCopy()
	}
	since := metav1.Now()
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: p.opts.Service + " gives each pod its own memory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: p.opts.Service + " gives each pod its own disk"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: p.opts.Service + " gives each pod its own processes"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the " + p.opts.Service + " provider is ready"},
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = since, since
		setCondition(n, c)
	}
	info := &n.Status.NodeInfo
	info.OperatingSystem, info.Architecture = cmp.Or(info.OperatingSystem, "linux"), cmp.Or(info.Architecture, "amd64")
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelOSStable], n.Labels[corev1.LabelArchStable] = info.OperatingSystem, info.Architecture
	p.report.base = n.DeepCopy()
}

func setCondition(n *corev1.Node, c corev1.NodeCondition) {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == c.Type {
			n.Status.Conditions[i] = c
			return
		}
	}
	n.Status.Conditions = append(n.Status.Conditions, c)
}

// Ping implements node.NodeProvider. The node is healthy while its units can be listed, and
// its backend reports; a refusal for too many calls is no failure.
func (p *Provider) Ping(ctx context.Context) error {
	if _, lists := p.backend.(Lister); lists {
		if _, err := p.units.all(ctx); err != nil && !isThrottled(err) {
			return err
		}
	}
	if reporter, ok := p.backend.(Reporter); ok {
		if err := p.pingReporter(ctx, reporter); err != nil && !isThrottled(err) {
			return err
		}
	}
	return nil
}

func (p *Provider) pingReporter(ctx context.Context, reporter Reporter) error {
	r := &p.report
	n := r.base.DeepCopy()
	if err := p.calls.do(ctx, ActionReport, func(ctx context.Context) error { return reporter.Report(ctx, n) }); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil && equality.Semantic.DeepEqual(n, r.base) || r.last != nil && equality.Semantic.DeepEqual(n, r.last) {
		return nil
	}
	r.last = n
	if r.notify != nil {
		r.notify(n)
	}
	return nil
}

// NotifyNodeStatus implements node.NodeProvider.
func (p *Provider) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) {
	r := &p.report
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify = notify
	if r.last != nil {
		notify(r.last)
	}
}
