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

// unknownAfter is how long a group of an earlier version has to have no pod to be warned
// of.
const unknownAfter = time.Minute

// owner decides which of the groups that have the names of this node are its own:
// another cluster may have a copy of the configuration. It is safe for concurrent use.
type owner struct {
	cluster, node string
	home          *clusteruid.Reader
	pods          corev1listers.PodLister

	mu       sync.Mutex
	is       types.UID            // of this cluster; empty before it is known
	accepted bool                 // this node had the names to itself, or groups of its own
	warned   bool                 // of groups of another cluster
	unknown  map[string]time.Time // groups of earlier versions without a pod, since when; zero once warned of
}

// uid returns the UID of this cluster's namespace kube-system. An error is of class
// Unavailable.
func (o *owner) uid(ctx context.Context) (types.UID, error) {
	uid, err := o.home.UID(ctx)
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.is = uid
	return uid, nil
}

// isAnothers reports whether a group is of another cluster.
func (o *owner) isAnothers(found *group) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	tag := tagOf(found, TagClusterUID)
	return tag != "" && tag != string(o.is)
}

// mayList reports whether a group may be shown as one of this node, to be deleted if it
// has no pod: one with this cluster's UID, or one of an earlier version, which has none,
// whose pod is at home.
func (o *owner) mayList(found *group) bool {
	if tagOf(found, TagClusterUID) != "" {
		return !o.isAnothers(found)
	}
	pod, err := o.pods.Pods(tagOf(found, TagNamespace)).Get(tagOf(found, TagPodName))
	return err == nil && pod.UID == uidOf(found)
}

// accept decides whether the node may act, given the groups of a listing that may be
// its own and the ids of those of other clusters. The error, of class Unavailable, says
// what to do. A node that has groups beside those of others, or had the names to itself
// before, goes on: to stop it would harm its pods.
func (o *owner) accept(ctx context.Context, groups []group, others []string) error {
	mine := func(found group) bool { return o.mayList(&found) }
	established, unknown := slices.ContainsFunc(groups, mine), slices.DeleteFunc(slices.Clone(groups), mine)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.warnOfUnknown(ctx, unknown)
	if len(others) == 0 || established || o.accepted {
		if len(others) > 0 && !o.warned {
			log.G(ctx).WithField("group", others[0]).WithField("groups", len(others)).
				Warn("Another cluster has container groups with the names of this cluster and node; they are left alone: give each cluster its own ClusterName")
		}
		o.warned = len(others) > 0
		o.accepted = true
		return nil
	}
	return errdefs.AsUnavailable(fmt.Errorf("container group %s, one of %d, comes from another cluster with the same names (ClusterName %q, node %q), whose kube-system has another UID than this one's, %s: "+
		"give this cluster a ClusterName of its own; or, if the other one is no more, delete the groups that it left", others[0], len(others), o.cluster, o.node, o.is))
}

// warnOfUnknown warns of the groups of earlier versions whose pod has not been at home
// for a minute: before, the pods may not be known yet. o.mu is held.
func (o *owner) warnOfUnknown(ctx context.Context, unknown []group) {
	before := o.unknown
	o.unknown = make(map[string]time.Time, len(unknown)) // without those that are gone
	for i := range unknown {
		id := unknown[i].ContainerGroupId
		since, ok := before[id]
		switch {
		case !ok:
			since = time.Now()
		case !since.IsZero() && time.Since(since) >= unknownAfter:
			log.G(ctx).WithField("group", id).WithField("pod", tagOf(&unknown[i], TagNamespace)+"/"+tagOf(&unknown[i], TagPodName)).
				Warn("A container group of an earlier version has no pod in this cluster, may be another one's, and is left alone: delete it if it is not")
			since = time.Time{} // has been warned of
		}
		o.unknown[id] = since
	}
}

// isAccepted reports whether accept has let the node act.
func (o *owner) isAccepted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.accepted
}
