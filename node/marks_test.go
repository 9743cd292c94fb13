package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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
