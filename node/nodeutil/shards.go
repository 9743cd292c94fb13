package nodeutil

import (
	"cmp"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/shard"
)

// Shards shares the nodes of a fleet out among several processes: each holds some
// of the shards, and what is in a shard, say each tenth node, is up to the caller.
// Shards of a process that was killed are taken by the others as soon as their
// leases have run out, and those of one that ends at once. When a process joins,
// shards move to it, one after the other.
//
// For each shard there is a Lease, and for each process. A process that cannot
// renew the lease of a shard for two thirds of its duration stops serving it, so
// that no two serve one at the same time, as far as leases can promise that: a
// machine that stands still for longer goes on for a moment when it wakes.
type Shards struct {
	// Client writes the leases. It needs the rights to list, create, update and
	// delete leases in Namespace. Required.
	Client kubernetes.Interface
	// Namespace is where the leases are; empty means kube-system.
	Namespace string
	// Name is the beginning of their names, and the same for all processes:
	// NAME-shard-NUMBER and NAME-member-HASH. Required, at most 63 characters.
	Name string
	// Count is how many shards there are, at least 1, and has to be the same for
	// all. A process takes none as long as there are others with another count.
	Count int
	// Identity distinguishes this process from all others, and from those that it was
	// before a restart. Required.
	Identity string
	// LeaseDuration is after what time shards are taken that were not renewed, in
	// whole seconds, at least 3; zero means 15 s. It should leave time for the
	// takeover before the leases of the nodes run out (40 s).
	LeaseDuration time.Duration
}

// Run takes part until ctx ends, then gives away what it has, and returns nil when
// all calls of serve have returned. An error, of class InvalidInput, means that the
// configuration is wrong. What goes wrong later is logged, and tried again.
//
// It calls serve in a goroutine of its own with the number, from 0 on, of each shard
// that it holds, and for one shard not before the last call has returned. serve
// returns soon after its ctx has ended; only then the shard is given away, unless
// the lease runs out before. If it returns earlier the shard is given away, and may
// be taken again. If context.Cause of ctx is node.ErrHandedOver another process goes on, or has
// taken the shard already: nodes should then leave with KeepingReady. Else there
// is none.
func (s Shards) Run(ctx context.Context, serve func(ctx context.Context, shard int)) error {
	if s.Client == nil {
		return errdefs.InvalidInput("shards need a client: set Client")
	}
	return shard.Run(ctx, shard.Config{
		Leases:        s.Client.CoordinationV1().Leases(cmp.Or(s.Namespace, metav1.NamespaceSystem)),
		Name:          s.Name,
		Identity:      s.Identity,
		Shards:        s.Count,
		LeaseDuration: s.LeaseDuration,
		Serve:         serve,
	})
}
