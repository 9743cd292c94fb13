package podgroup

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/clusteruid"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// unknownAfter is how long a unit without a cluster's UID has to be without a pod before a
// warning is logged.
const unknownAfter = time.Minute

// owner decides which of the units with the names of this cluster and node belong to it:
// another cluster may have a copy of the configuration. It is safe for concurrent use.
type owner struct {
	identity Identity
	home     *clusteruid.Reader
	pods     corev1listers.PodLister

	mu         sync.Mutex
	clusterUID types.UID            // of this cluster; empty while unknown
	accepted   bool                 // no other cluster had units with the names, or this one has units, too
	warned     bool                 // about units of another cluster
	unknown    map[string]time.Time // units that do not say their cluster, without a pod, since when; zero once logged
}

// uid returns the UID of this cluster's kube-system namespace. An error is of class
// Unavailable.
func (o *owner) uid(ctx context.Context) (types.UID, error) {
	uid, err := o.home.UID(ctx)
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clusterUID = uid
	return uid, nil
}

// isForeign reports whether a unit belongs to another cluster.
func (o *owner) isForeign(found *Unit) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	tag := found.Tags[TagClusterUID]
	return tag != "" && tag != string(o.clusterUID)
}

// isOurs reports whether a unit may be shown as one of this node, and so be deleted if it
// has no pod. It has this cluster's UID; or it has none, from a program that wrote none,
// and this cluster has its pod.
func (o *owner) isOurs(found *Unit) bool {
	if found.Tags[TagClusterUID] != "" {
		return !o.isForeign(found)
	}
	pod, err := o.pods.Pods(found.Owner.Namespace).Get(found.Owner.Name)
	return err == nil && pod.UID == found.Owner.UID
}

// accept decides whether the node may act, given the units of a list that may belong to it
// and the IDs of those of other clusters. The error, of class Unavailable, says what to
// do. A node that has units beside those of others, or was accepted before, continues: to
// stop it would harm its pods.
func (o *owner) accept(ctx context.Context, list []Unit, others []string) error {
	mine := func(found Unit) bool { return o.isOurs(&found) }
	established, unknown := slices.ContainsFunc(list, mine), slices.DeleteFunc(slices.Clone(list), mine)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.warnOfUnknown(ctx, unknown)
	if len(others) == 0 || established || o.accepted {
		if len(others) > 0 && !o.warned {
			log.G(ctx).WithField("unit", others[0]).WithField("units", len(others)).
				Warn("Another cluster has units with the names of this cluster and node; not touching them: give each cluster a name of its own")
		}
		o.warned = len(others) > 0
		o.accepted = true
		return nil
	}
	return errdefs.AsUnavailable(fmt.Errorf("unit %s, one of %d, belongs to another cluster with the same names (cluster %q, node %q), whose kube-system has another UID than this one's, %s: "+
		"give this cluster a name of its own; or, if the other one no longer exists, delete the units that it left", others[0], len(others), o.identity.Cluster, o.identity.Node, o.clusterUID))
}

// warnOfUnknown logs the units without a cluster that have had no pod for unknownAfter:
// before, the cache may lack the pod. The caller holds o.mu.
func (o *owner) warnOfUnknown(ctx context.Context, unknown []Unit) {
	before := o.unknown
	o.unknown = make(map[string]time.Time, len(unknown)) // drops those that are gone
	for i := range unknown {
		id, pod := unknown[i].ID, unknown[i].Owner
		since, ok := before[id]
		switch {
		case !ok:
			since = time.Now()
		case !since.IsZero() && time.Since(since) >= unknownAfter:
			log.G(ctx).WithField("unit", id).WithField("pod", pod.Namespace+"/"+pod.Name).
				Warn("Not touching a unit that does not say its cluster and has no pod in this one: delete it if it does not belong to another")
			since = time.Time{} // it was logged
		}
		o.unknown[id] = since
	}
}

// isAccepted reports whether accept has succeeded.
func (o *owner) isAccepted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.accepted
}
