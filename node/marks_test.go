package node

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodemarks"
)

// A Node says that nobody keeps it after an orderly end, or by the word of the
// control plane; one whose provider is ill is kept.
func TestStopped(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(WithNodeNotReadyAtShutdown())
		want(t, "while it runs", nodemarks.Stopped(r.api.Node("vk")), false)
		r.pinged(func(context.Context) error { return errors.New("ill") })
		pass(DefaultPingInterval)
		r.wantReady("False ProviderNotReady")
		want(t, "with an ill provider", nodemarks.Stopped(r.api.Node("vk")), false)
		r.end()
		n := r.api.Node("vk")
		want(t, "after the end", nodemarks.Stopped(n), true)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"}}
		want(t, "by the word of the control plane", nodemarks.Stopped(n), true)
		n.Status.Conditions = nil
		want(t, "without a word", nodemarks.Stopped(n), false)
	})
}

func TestHolder(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := &versionedLeases{}
		first := newProcess(t, r, leases, identified("first"))
		first.begin()
		pass(time.Minute)
		lease := leases.now()
		want(t, "holder", nodemarks.Holder(&lease), "first")
		want(t, "group without one", nodemarks.HolderGroup(&lease), "")
		_, renewed := nodemarks.Renewed(&lease)
		want(t, "renewed", renewed.Equal(lease.Spec.RenewTime.Time), true)
		lease.Annotations[annotationHolderGroup] = "replicas"
		want(t, "group", nodemarks.HolderGroup(&lease), "replicas")
	})
}

// A lease is as old as its last renewal by the API server's clock: that of the process
// which renews it may be wrong.
func TestRenewed(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	entry := func(fields string, after time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: at.Add(after)}, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	lease := &coordinationv1.Lease{}
	server, holder := nodemarks.Renewed(lease)
	want(t, "never", server.IsZero() && holder.IsZero(), true)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: at.Add(-time.Hour)}
	server, holder = nodemarks.Renewed(lease)
	want(t, "without a record", server.Equal(holder) && holder.Equal(at.Add(-time.Hour)), true)
	lease.ManagedFields = []metav1.ManagedFieldsEntry{
		entry(`{"f:spec":{"f:renewTime":{}}}`, -time.Minute),
		entry(`{"f:spec":{"f:renewTime":{}}}`, 0),
		entry(`{"f:metadata":{"f:annotations":{}}}`, time.Minute), // somebody else's
	}
	server, holder = nodemarks.Renewed(lease)
	want(t, "by the server", server.Equal(at), true)
	want(t, "by the holder", holder.Equal(at.Add(-time.Hour)), true)

	lease.ManagedFields[1].Time = &metav1.Time{Time: time.Now().Add(-30 * time.Second)}
	for _, c := range []struct {
		seconds *int32
		skew    time.Duration
		want    bool
	}{{nil, 0, true}, {nil, time.Minute, false}, {ptr.To[int32](10), 0, false}, {ptr.To[int32](10), -time.Minute, true}} {
		lease.Spec.LeaseDurationSeconds = c.seconds
		_, lasts := nodemarks.Age(lease, c.skew, 40*time.Second)
		want(t, "lasts", lasts, c.want)
	}
}

func TestMade(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start()
		n := r.api.Node("vk")
		want(t, "a Node of a controller", nodemarks.Made(n), true)
		n.Labels, n.Annotations = nil, nil
		want(t, "any other", nodemarks.Made(n), false)
		n.Labels = map[string]string{"type": "virtual-kubelet"}
		want(t, "one of an older library", nodemarks.Made(n), true)
	})
}

func TestWroteLabel(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start()
		n := r.api.Node("vk")
		n.Labels["zone"] = "a"
		want(t, "a label of the provider", nodemarks.WroteLabel(n, "type"), true)
		want(t, "somebody else's", nodemarks.WroteLabel(n, "zone"), false)
		delete(n.Labels, "type")
		want(t, "one that is gone", nodemarks.WroteLabel(n, "type"), false)
	})
}
