package eci

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

// unknownAfter is how long a group of an earlier version has to be without a pod before
// a warning is logged.
const unknownAfter = time.Minute

// owner decides which of the groups with the names of this node belong to it: another
// cluster may have a copy of the configuration. It is safe for concurrent use.
type owner struct {
	cluster, node string
	home          *clusteruid.Reader
	pods          corev1listers.PodLister

	mu         sync.Mutex
	clusterUID types.UID            // of this cluster; empty while unknown
	accepted   bool                 // no other cluster had groups with the names, or this one has groups, too
	warned     bool                 // about groups of another cluster
	unknown    map[string]time.Time // groups of earlier versions without a pod, since when; zero once logged
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

// isForeign reports whether a group belongs to another cluster.
func (o *owner) isForeign(found *group) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	tag := tagOf(found, TagClusterUID)
	return tag != "" && tag != string(o.clusterUID)
}

// isOurs reports whether a group may be shown as one of this node, and so be deleted if
// it has no pod. It has this cluster's UID, or it has none, from an earlier version,
// and this cluster has its pod.
func (o *owner) isOurs(found *group) bool {
	if tagOf(found, TagClusterUID) != "" {
		return !o.isForeign(found)
	}
	pod, err := o.pods.Pods(tagOf(found, TagNamespace)).Get(tagOf(found, TagPodName))
	return err == nil && pod.UID == uidOf(found)
}

// accept decides whether the node may act, given the groups of a listing that may
// belong to it and the IDs of those of other clusters. The error, of class Unavailable,
// says what to do. A node that has groups beside those of others, or was accepted
// before, continues: to stop it would harm its pods.
func (o *owner) accept(ctx context.Context, groups []group, others []string) error {
	mine := func(found group) bool { return o.isOurs(&found) }
	established, unknown := slices.ContainsFunc(groups, mine), slices.DeleteFunc(slices.Clone(groups), mine)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.warnOfUnknown(ctx, unknown)
	if len(others) == 0 || established || o.accepted {
		if len(others) > 0 && !o.warned {
			log.G(ctx).WithField("group", others[0]).WithField("groups", len(others)).
				Warn("Another cluster has container groups with the names of this cluster and node; not touching them: give each cluster its own ClusterName")
		}
		o.warned = len(others) > 0
		o.accepted = true
		return nil
	}
	return errdefs.AsUnavailable(fmt.Errorf("container group %s, one of %d, belongs to another cluster with the same names (ClusterName %q, node %q), whose kube-system has another UID than this one's, %s: "+
		"give this cluster a ClusterName of its own; or, if the other one no longer exists, delete the groups that it left", others[0], len(others), o.cluster, o.node, o.clusterUID))
}

// warnOfUnknown logs the groups of earlier versions that have had no pod for
// unknownAfter: before, the cache may lack the pod. The caller holds o.mu.
func (o *owner) warnOfUnknown(ctx context.Context, unknown []group) {
	before := o.unknown
	o.unknown = make(map[string]time.Time, len(unknown)) // drops those that are gone
	for i := range unknown {
		id := unknown[i].ContainerGroupId
		since, ok := before[id]
		switch {
		case !ok:
			since = time.Now()
		case !since.IsZero() && time.Since(since) >= unknownAfter:
			log.G(ctx).WithField("group", id).WithField("pod", tagOf(&unknown[i], TagNamespace)+"/"+tagOf(&unknown[i], TagPodName)).
				Warn("Not touching a container group of an earlier version that has no pod in this cluster and may belong to another one: delete it if it does not")
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
