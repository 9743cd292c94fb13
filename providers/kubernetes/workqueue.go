package kubernetes

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// workItem is work on a pod that is retried until it succeeds: create a remote pod
// again, remove metadata, add ephemeral containers, fail an unscheduled pod, confirm one
// that a list lacks, or delete one that is unwanted.
type workItem struct {
	uid            types.UID // of the home pod
	removeMetadata bool
	unscheduled    bool
	unconfirmed    bool
	reported       bool                 // by a watch, as deleted; with unconfirmed
	ephemeralOf    types.NamespacedName // the name of the home pod, to add its ephemeral containers
	unwanted       unwanted             // a remote pod to delete; uid is empty
}

// syncTimeout is the timeout of one attempt, so that a call that hangs does not hold a
// worker for ever.
const syncTimeout = time.Minute

// runWorker processes work items until ctx ends.
func (p *Provider) runWorker(ctx context.Context) {
	for {
		item, end := p.queue.Get()
		if end {
			return
		}
		if err := p.syncItem(ctx, item); err != nil && ctx.Err() == nil {
			log.G(ctx).WithError(err).WithField("uid", item.uid).Warn("Cannot sync a remote pod; retrying")
			p.queue.AddRateLimited(item)
		} else {
			p.queue.Forget(item)
		}
		p.queue.Done(item)
	}
}

func (p *Provider) syncItem(ctx context.Context, item workItem) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	switch {
	case item.unwanted.uid != "":
		return p.deleteUnwanted(ctx, item.unwanted)
	case item.ephemeralOf.Name != "":
		return p.addEphemeral(ctx, item.ephemeralOf, item.uid)
	case item.unconfirmed:
		return p.confirm(ctx, item)
	case item.removeMetadata:
		return p.removeMetadata(ctx, item.uid)
	case item.unscheduled:
		return p.failUnscheduled(ctx, item.uid)
	}
	return p.replace(ctx, item.uid)
}
