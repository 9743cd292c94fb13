package server

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/metadata"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
)

// ClusterKeeper is what a provider implements whose pods outlast its process, such as a pod engine:
// without it, of two clusters with a node of the same name the one counts that comes first after a
// start.
type ClusterKeeper interface {
	// ClusterUID returns the UID that KeepClusterUID was called with last, also by an earlier
	// process, and the file that it is kept in; empty if it was not.
	ClusterUID() (uid types.UID, file string, err error)
	// KeepClusterUID keeps the UID of the cluster whose pods the provider runs.
	KeepClusterUID(uid types.UID) error
}

// cluster is that of the pods: the one that was kept with them, or else the first that a caller
// names.
type cluster struct {
	keeper ClusterKeeper // nil without

	mu   sync.Mutex
	uid  types.UID
	file string
}

// restore reads of which cluster the pods are that a provider has from an earlier process. Without
// pods any cluster may come first.
func (c *cluster) restore(ctx context.Context, provider nodeutil.Provider, getPods func(context.Context) ([]*corev1.Pod, error)) {
	keeper, ok := unwrapped(provider).(ClusterKeeper)
	if !ok {
		return
	}
	uid, file, err := keeper.ClusterUID()
	if err != nil {
		log.G(ctx).WithError(err).Warn("The cluster of the pods is not known: the first that names itself counts")
	}
	c.keeper, c.file = keeper, file
	if pods, err := getPods(ctx); err != nil || len(pods) > 0 {
		c.uid = uid
	}
}

// check returns an error for another cluster than that of the pods.
func (c *cluster) check(node string, uid types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid == "" {
		if c.keeper != nil {
			if err := c.keeper.KeepClusterUID(uid); err != nil {
				return errdefs.AsUnavailable(fmt.Errorf("keep of which cluster the pods are: %w", err))
			}
		}
		c.uid = uid
	}
	if uid == c.uid {
		return nil
	}
	cure := "restart this one"
	if c.file != "" {
		cure = "end this one, remove its file " + c.file + ", and start it again,"
	}
	return fmt.Errorf("this provider runs the pods of node %q of the cluster whose kube-system has the UID %s, not of %s: give one of the nodes another name and provider, or %s if the other cluster is gone", node, c.uid, uid, cure)
}

// isOf returns an error if the call comes from another cluster: to a node of the same name there,
// which knows none of the pods, all would be superfluous.
func (s *Server) isOf(ctx context.Context) error {
	uids := metadata.ValueFromIncomingContext(ctx, wire.ClusterKey)
	if len(uids) == 0 || uids[0] == "" || s.opts.Node == nil || s.opts.Node.Name == "" {
		return nil
	}
	return s.cluster.check(s.opts.Node.Name, types.UID(uids[0]))
}
