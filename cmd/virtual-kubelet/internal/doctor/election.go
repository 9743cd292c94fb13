package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/shard"
)

// checkElection looks at the leases of --leader-elect or --shards.
func checkElection(ctx context.Context, e *examination) Finding {
	leases := e.client.CoordinationV1().Leases(e.Elections.Namespace)
	if e.Elections.Shards == 0 {
		lease, err := leases.Get(ctx, e.Elections.Leader, metav1.GetOptions{})
		where := "lease " + e.Elections.Leader + " in namespace " + e.Elections.Namespace
		switch {
		case apierrors.IsNotFound(err):
			return failed("start virtual-kubelet --leader-elect", "no process has led yet: there is no %s", where)
		case err != nil:
			return e.unread(where, err)
		}
		holder, age, live := e.holderOf(lease)
		if !live {
			return failed("start virtual-kubelet --leader-elect; if it runs, its log says why it does not lead", "no process leads: %s was renewed %v ago", where, age)
		}
		return ok("%s leads, and renewed its lease %v ago", holder, age)
	}
	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: shard.Label + "=" + e.Elections.Name})
	if err != nil {
		return e.unread("the leases of the shards in namespace "+e.Elections.Namespace, err)
	}
	return e.examineShards(list.Items)
}

// examineShards looks at the leases of shards, and of the processes that share them.
func (e *examination) examineShards(leases []coordinationv1.Lease) Finding {
	members, held, counts := 0, map[string]bool{}, map[string]bool{}
	for i := range leases {
		lease := &leases[i]
		if _, _, live := e.holderOf(lease); !live {
			continue
		}
		if strings.HasPrefix(lease.Name, e.Elections.Name+"-member-") {
			members++
			counts[lease.Annotations[shard.AnnotationCount]] = true
		} else {
			held[lease.Name] = true
		}
	}
	var free []string
	for i := range e.Elections.Shards {
		if name := fmt.Sprintf("%s-shard-%d", e.Elections.Name, i); !held[name] {
			free = append(free, name)
		}
	}
	wanted := fmt.Sprint(e.Elections.Shards)
	switch {
	case members == 0:
		return failed("start virtual-kubelet --shards "+wanted, "no process shares the nodes: no lease of one in namespace %s lasts", e.Elections.Namespace)
	case len(counts) > 1 || !counts[wanted]:
		return failed("one value of --shards for all processes with this --nodename; those of another one have to end first",
			"the %d processes go by %s shards, and this configuration by %s: none takes a shard while that differs", members, strings.Join(slices.Sorted(maps.Keys(counts)), " and "), wanted)
	case len(free) > 0:
		return failed("run this again in a minute; if they stay free, the logs of the processes say why", "no process has %s, of %d shards: their nodes do not run", named(free), e.Elections.Shards)
	}
	return ok("%d processes share %d shards", members, e.Elections.Shards)
}

// holderOf returns who holds a lease of an election, and whether it does still.
func (e *examination) holderOf(lease *coordinationv1.Lease) (holder string, age time.Duration, live bool) {
	holder = ptr.Deref(lease.Spec.HolderIdentity, "")
	age, live = e.renewed(lease, shard.DefaultLeaseDuration)
	return holder, age, live && holder != ""
}
