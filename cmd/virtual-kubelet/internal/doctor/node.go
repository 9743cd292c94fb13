package doctor

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodemarks"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// checkNode reads the Node object, and to whom it belongs.
func checkNode(ctx context.Context, e *examination) Finding {
	object, err := e.client.CoreV1().Nodes().Get(ctx, e.node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return failed("start virtual-kubelet --nodename "+e.node.Name+"; if it runs, its log says why it does not register",
			"there is no Node %s", e.node.Name)
	case err != nil:
		return e.unread("Node "+e.node.Name, err)
	}
	e.object = object
	another := "another --nodename; or, if the Node is to change hands, virtual-kubelet --adopt-node"
	switch provider := object.Labels[node.LabelProvider]; {
	case provider == "":
		return failed(another, "no virtual kubelet made this Node: it has no label %s", node.LabelProvider)
	case provider != e.node.Provider && e.node.Provider != "":
		return failed(another, "the Node belongs to provider %s, not to %s (label %s)", provider, e.node.Provider, node.LabelProvider)
	default:
		return ok("registered %s ago with provider %s", e.since(object.CreationTimestamp.Time), provider)
	}
}

// checkLease looks whether the node's heart beats.
func checkLease(ctx context.Context, e *examination) Finding {
	if e.NoLease {
		return notChecked("--enable-node-lease is false")
	}
	lease, err := e.lease(ctx)
	restart := "start virtual-kubelet --nodename " + e.node.Name + "; if it runs, its log says why it cannot renew the lease"
	switch {
	case apierrors.IsNotFound(err):
		return failed(restart, "the node has no lease in namespace %s: no process acts for it", corev1.NamespaceNodeLease)
	case err != nil:
		return e.unread("the node's lease", err)
	case lease.Spec.RenewTime == nil:
		return failed(restart, "the lease was never renewed: no process acts for the node")
	}
	lasts := ptr.Deref(lease.Spec.LeaseDurationSeconds, node.DefaultLeaseDuration)
	age := e.since(lease.Spec.RenewTime.Time)
	if age > time.Duration(lasts)*time.Second {
		return failed(restart, "the lease was renewed %v ago, and lasts %ds: no process acts for the node", age, lasts)
	}
	return ok("renewed %v ago", age)
}

// checkHolder looks who renews the node's lease.
func checkHolder(ctx context.Context, e *examination) Finding {
	if e.NoLease {
		return notChecked("--enable-node-lease is false")
	}
	lease, err := e.lease(ctx)
	if err != nil {
		return e.unread("the node's lease", err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != e.node.Name {
		return failed("stop that program, or use another --nodename", "the lease is held by %q, which is another program with this node name", *holder)
	}
	identity := nodemarks.Holder(lease)
	if identity == "" {
		return warning("start virtual-kubelet --nodename "+e.node.Name, "the lease names no process: the last one has just ended, or is of a version that does not")
	}
	description, rival := e.Holder(identity)
	if rival {
		return failed("another --nodename for one of the two, or --leader-elect for both; kubectl get pods -A -o custom-columns=UID:.metadata.uid,NAMESPACE:.metadata.namespace,NAME:.metadata.name finds a pod by its UID",
			"another process has the node, and this one waits for its end: %s", description)
	}
	return ok("%s", description)
}

func (e *examination) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	return e.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, e.node.Name, metav1.GetOptions{})
}

// checkReady reads the node's Ready condition.
func checkReady(_ context.Context, e *examination) Finding {
	for _, c := range e.object.Status.Conditions {
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			return ok("for %v, as version %s", e.since(c.LastTransitionTime.Time), e.object.Status.NodeInfo.KubeletVersion)
		default:
			return failed("fix what the message says, in the provider or its configuration (virtual-kubelet providers "+e.object.Labels[node.LabelProvider]+")",
				"the node is not ready for %v: %s: %s", e.since(c.LastTransitionTime.Time), c.Reason, c.Message)
		}
	}
	return failed("see the log of the process", "the node has no condition Ready yet")
}

// since returns for how long something is so, by the API server's clock.
func (e *examination) since(at time.Time) time.Duration {
	return max(time.Since(at.Add(-e.skew)).Round(time.Second), 0)
}
