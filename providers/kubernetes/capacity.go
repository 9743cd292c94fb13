package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// watchCapacity updates the capacity of the node until ctx ends. If the remote cluster
// cannot be reached, the capacity stays as it is.
func (p *Provider) watchCapacity(ctx context.Context, n *corev1.Node, notify func(*corev1.Node)) {
	select {
	case <-p.identity.known: // it distinguishes the node's own pods from others
	case <-ctx.Done():
		return
	}
	read := p.quotaCapacity
	if p.cfg.Capacity.Source == CapacityNodes {
		read = p.watchNodes(ctx)
	}
	for {
		found, err := read(ctx)
		if err != nil && ctx.Err() == nil {
			log.G(ctx).WithError(err).Warn("Cannot determine the capacity of the remote cluster; retrying")
		}
		if err == nil {
			capacity := maps.Clone(p.cfg.Capacity.Resources)
			maps.Copy(capacity, found)
			if !equality.Semantic.DeepEqual(capacity, n.Status.Capacity) {
				n.Status.Capacity, n.Status.Allocatable = capacity, maps.Clone(capacity)
				notify(n.DeepCopy())
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.cfg.Capacity.Interval.Duration):
		}
	}
}

// sumNodes returns the allocatable resources of the nodes that can take pods, less the
// requests of pods that this home does not own. If there is no such node, the resources
// are zero, not the configured default.
func sumNodes(nodes []*corev1.Node, pods []*corev1.Pod, home translate.Home, scheduling *translate.Scheduling) corev1.ResourceList {
	usable, sum := map[string]bool{}, corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourcePods: {}}
	for _, n := range nodes {
		if !n.Spec.Unschedulable && isReady(n) && !isVirtual(n) && scheduling.MayTake(n) {
			usable[n.Name] = true
			add(sum, n.Status.Allocatable, 1)
		}
	}
	for _, pod := range pods {
		if usable[pod.Spec.NodeName] && !home.Owns(pod) {
			requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			requests[corev1.ResourcePods] = resource.MustParse("1")
			add(sum, requests, -1)
		}
	}
	for name, q := range sum {
		if q.Sign() < 0 {
			sum[name] = resource.Quantity{Format: q.Format}
		}
	}
	return sum
}

// add adds list to sum, or with sign -1 subtracts from sum what it has of list.
func add(sum, list corev1.ResourceList, sign int) {
	for name, q := range list {
		total, ok := sum[name]
		switch {
		case sign > 0:
			total.Add(q)
		case ok:
			total.Sub(q)
		default:
			continue
		}
		sum[name] = total
	}
}

// isVirtual reports whether a node is a virtual node, of this or another cluster. Its
// resources are not its own: two virtual nodes that count each other would offer more
// and more.
func isVirtual(n *corev1.Node) bool {
	return n.Labels["type"] == "virtual-kubelet" || n.Labels[labelProvider] != "" || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == labelProvider
	})
}

// labelProvider is the key of a label, and by default of a taint, of virtual nodes.
const labelProvider = "virtual-kubelet.io/provider"

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (p *Provider) quotaCapacity(ctx context.Context) (corev1.ResourceList, error) {
	list, err := p.remote.CoreV1().ResourceQuotas(p.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the resource quotas of the remote namespace: %w", err)
	}
	return leastQuota(list.Items), nil
}

// leastQuota returns the smallest limits of the quotas that apply to all pods of a
// namespace.
func leastQuota(quotas []corev1.ResourceQuota) corev1.ResourceList {
	least := corev1.ResourceList{}
	for i := range quotas {
		if len(quotas[i].Spec.Scopes) > 0 || quotas[i].Spec.ScopeSelector != nil {
			continue
		}
		for name, q := range quotas[i].Spec.Hard {
			of := corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix))
			if !isNodeResource(of) {
				continue
			}
			if old, ok := least[of]; !ok || q.Cmp(old) < 0 {
				least[of] = q
			}
		}
	}
	return least
}

// isNodeResource reports whether a resource in a quota is also a resource of nodes.
func isNodeResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage:
		return true
	}
	return strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), "count/")
}
