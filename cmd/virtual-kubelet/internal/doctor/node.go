package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodemarks"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// checkNode reads the Node object, and to whom it belongs.
func checkNode(ctx context.Context, e *examination) Finding {
	object, err := e.client.CoreV1().Nodes().Get(ctx, e.node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if deleted, found := e.deletedByCloud(ctx); found {
			return failed(keepReady, "there is no Node %s: %s", e.node.Name, deleted)
		}
		return failed("start virtual-kubelet --nodename "+e.node.Name+"; if it runs, its log says why it does not register",
			"there is no Node %s", e.node.Name)
	case err != nil:
		return e.unread("Node "+e.node.Name, err)
	}
	e.object = object
	another := "another --nodename; or, if the Node is to change hands, virtual-kubelet --adopt-node"
	provider := object.Labels[node.LabelProvider]
	switch {
	case !nodemarks.Made(object):
		return failed(another, "no virtual kubelet made this Node: it has no label %s", node.LabelProvider)
	case provider != "" && provider != e.node.Provider && e.node.Provider != "":
		return failed(another, "the Node belongs to provider %s, not to %s (label %s)", provider, e.node.Provider, node.LabelProvider)
	case object.DeletionTimestamp != nil:
		return failed("kubectl get node "+e.node.Name+" -o jsonpath='{.metadata.finalizers}' shows who has something to do first", "the Node is being deleted since %v", e.since(object.DeletionTimestamp.Time))
	}
	age := e.since(object.CreationTimestamp.Time)
	if deleted, found := e.deletedByCloud(ctx); found {
		return warning(keepReady, "registered again %v ago, since %s", age, deleted)
	}
	if service := e.managedCluster(ctx); service != "" && object.Spec.ProviderID == "" {
		return warning("start it with --managed-cluster "+service+" (docs/managed-clusters.md)",
			"registered %v ago without a provider ID, beside machines of %s, whose controllers may delete it when it is not ready, and scale nothing because of it", age, service)
	}
	if provider == "" {
		return ok("registered %v ago, without a label %s", age, node.LabelProvider)
	}
	return ok("registered %v ago with provider %s", age, provider)
}

// keepReady is the remedy against a cloud controller.
const keepReady = "keep the node Ready, since only others are deleted: no --not-ready-at-shutdown, and --leader-elect with a second replica; in AKS, EKS and GKE --managed-cluster, too"

// deletedByCloud reports whether a cloud's controller has deleted the node's Node of late,
// as one that is no machine of that cloud, and describes that.
func (e *examination) deletedByCloud(ctx context.Context) (description string, found bool) {
	list, err := e.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: maxEvents,
		FieldSelector: "involvedObject.kind=Node,reason=DeletingNode,involvedObject.name=" + e.node.Name})
	if err != nil { // who may not read events still has everything else
		return "", false
	}
	var last *corev1.Event
	for i := range list.Items {
		if event := &list.Items[i]; last == nil || last.LastTimestamp.Before(&event.LastTimestamp) {
			last = event
		}
	}
	if last == nil {
		return "", false
	}
	return fmt.Sprintf("the cluster's cloud controller has deleted it %v ago: %s", e.since(last.LastTimestamp.Time), last.Message), true
}

// schemes are how provider IDs of machines begin, by the --managed-cluster for nodes beside them.
var schemes = map[string]string{"azure://": "aks", "aws://": "eks", "gce://": "gke"}

// managedCluster returns the --managed-cluster for a cluster with machines of such a cloud; empty for none,
// also where nodes may not be listed.
func (e *examination) managedCluster(ctx context.Context) string {
	list, err := e.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: maxMachines})
	if err != nil {
		return ""
	}
	for i := range list.Items {
		other := &list.Items[i]
		for scheme, service := range schemes {
			if !nodemarks.Made(other) && strings.HasPrefix(other.Spec.ProviderID, scheme) {
				return service
			}
		}
	}
	return ""
}

// maxMachines bounds how many nodes are read to find out what machines a cluster has.
const maxMachines = 50

// maxEvents bounds how many events are read: similar ones are one event with a count.
const maxEvents = 50

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
	}
	age, live := e.renewed(lease, node.DefaultLeaseDuration*time.Second)
	switch {
	case lease.Spec.RenewTime == nil:
		return failed(restart, "the lease was never renewed: no process acts for the node")
	case !live:
		return failed(restart, "the lease was renewed %v ago, and has run out: no process acts for the node, or none that reaches the API server", age)
	}
	if byServer, byHolder := nodemarks.Renewed(lease); byServer.Sub(byHolder).Abs() > maxSkew && nodemarks.Holder(lease) != "" {
		behind := "behind"
		if byHolder.After(byServer) {
			behind = "ahead of"
		}
		return warning("timedatectl set-ntp true, on the machine of the node's process", "renewed %v ago, but the clock of the process is %v %s the API server's",
			age, byServer.Sub(byHolder).Abs().Round(time.Second), behind)
	}
	return ok("renewed %v ago", age)
}

// renewed returns how long ago a lease was renewed, by the API server's clock, and whether
// it lasts still.
func (e *examination) renewed(lease *coordinationv1.Lease, otherwise time.Duration) (age time.Duration, live bool) {
	return nodemarks.Age(lease, e.skew, otherwise)
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
	description, rival := e.Holder(identity, nodemarks.HolderGroup(lease))
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
			return failed("fix what the message says, in the provider or its configuration (virtual-kubelet providers "+Word(e.object.Labels[node.LabelProvider])+")",
				"the node is not ready for %v: %s: %s", e.since(c.LastTransitionTime.Time), c.Reason, c.Message)
		}
	}
	return failed("see the log of the process", "the node has no condition Ready yet")
}

// since returns for how long something is so, by the API server's clock.
func (e *examination) since(at time.Time) time.Duration {
	return max(time.Since(at.Add(-e.skew)).Round(time.Second), 0)
}
