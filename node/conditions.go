package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// The reasons of the events on a Node. All but the last are a kubelet's.
const (
	reasonStarting          = "Starting"
	reasonNodeReady         = "NodeReady"
	reasonNodeNotReady      = "NodeNotReady"
	reasonProviderUnhealthy = "ProviderUnhealthy"
)

// readyCondition is the Ready condition of a Node; its zero value if there is none.
func readyCondition(n *corev1.Node) corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return n.Status.Conditions[i]
}

// ConditionReady is closed once the Node's Ready condition is True in the API, by
// the word of this controller. It may have changed since: see NotReady.
func (n *NodeController) ConditionReady() <-chan struct{} { return n.conditionReady }

// NotReady returns nil while the Node's Ready condition is True, as this controller
// last wrote it, and else what keeps it from being so: the reason and message of the
// condition; or before the node is registered what that waits for (ErrNodeRefused,
// ErrNodeHeld, or an error of the API server).
func (n *NodeController) NotReady() error {
	if c := n.condition.Load(); c != nil {
		if c.Status == corev1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("the node is not ready: %s: %s", c.Reason, c.Message)
	}
	if n.claim != nil {
		if err := n.claim.Waiting(); err != nil {
			return err
		}
	}
	if err := n.obstacle.Load(); err != nil {
		return *err
	}
	return errors.New("the node is not registered yet")
}

// reportCondition records what the Ready condition is, and an event if it was
// another one before.
func (n *NodeController) reportCondition(before corev1.ConditionStatus) {
	c := readyCondition(n.current)
	n.condition.Store(&c)
	if c.Status == corev1.ConditionTrue {
		n.everReady.Do(func() { close(n.conditionReady) })
	}
	if c.Status == before {
		return
	}
	reason := reasonNodeNotReady
	if c.Status == corev1.ConditionTrue {
		reason = reasonNodeReady
	}
	n.event(corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", n.name, reason))
}

// reportHealth logs that the provider's health has changed, and records an event if
// it is not well.
func (n *NodeController) reportHealth(ctx context.Context) {
	if n.health == nil {
		log.G(ctx).Info("The provider is well again")
		return
	}
	log.G(ctx).WithError(n.health).Warn("The provider is not well")
	n.event(corev1.EventTypeWarning, reasonProviderUnhealthy, n.health.Error())
}

// event records an event on the Node, by its name in the place of the UID, as a
// kubelet does; kubectl describe looks for both.
func (n *NodeController) event(eventtype, reason, message string) {
	n.events.Event(&corev1.ObjectReference{Kind: "Node", Name: n.name, UID: types.UID(n.name)}, eventtype, reason, message)
}
