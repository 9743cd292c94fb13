package floor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heartbeat is how often the lease of a node is renewed, as a kubelet's.
const heartbeat = 10 * time.Second

// names are those of the nodes.
func (a Agent) names() []string {
	if a.Nodes == 1 {
		return []string{a.Node}
	}
	var names []string
	for i := range a.Nodes {
		names = append(names, fmt.Sprintf("%s-%d", a.Node, i))
	}
	return names
}

// register makes nodes that are Ready, and their leases.
func (a Agent) register(ctx context.Context) ([]*coordinationv1.Lease, error) {
	names := a.names()
	leases := make([]*coordinationv1.Lease, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(a.Workers)
	for i, name := range names {
		group.Go(func() (err error) {
			if leases[i], err = a.registerNode(ctx, name); err != nil {
				return fmt.Errorf("register node %s: %w", name, err)
			}
			return nil
		})
	}
	return leases, group.Wait()
}

// room is what a scheduler sees of a node.
var room = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("20000"), corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti")}

func (a Agent) registerNode(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	now := metav1.Now()
	_, err := a.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Allocatable: room, Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Floor", LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return a.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro())},
	}, metav1.CreateOptions{})
}

// renew renews the leases, one after the other over each interval.
func (a Agent) renew(ctx context.Context, leases []*coordinationv1.Lease) error {
	ticker := time.NewTicker(heartbeat / time.Duration(len(leases)))
	defer ticker.Stop()
	for i := 0; ; i = (i + 1) % len(leases) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		lease := leases[i]
		lease.Spec.RenewTime = new(metav1.NowMicro())
		var err error
		if leases[i], err = a.Client.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("renew the lease of node %s: %w", lease.Name, err)
		}
	}
}
