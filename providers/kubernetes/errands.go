package kubernetes

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// errand is something to see to of a pod, until it is done: what the remote cluster
// took away, or what home has taken back, or what is not scheduled.
type errand struct {
	uid         types.UID // at home
	takeBack    bool
	unscheduled bool
	doubtful    bool
	unwanted    unwanted // a remote pod that is to be deleted; without uid
}

// errandTimeout bounds one attempt: a call that hangs does not hold a runner for ever.
const errandTimeout = time.Minute

// runErrands runs errands until ctx ends.
func (p *Provider) runErrands(ctx context.Context) {
	for {
		e, end := p.errands.Get()
		if end {
			return
		}
		if err := p.run(ctx, e); err != nil && ctx.Err() == nil {
			log.G(ctx).WithError(err).WithField("uid", e.uid).Warn("Cannot bring a remote pod to where it should be; it is tried again")
			p.errands.AddRateLimited(e)
		} else {
			p.errands.Forget(e)
		}
		p.errands.Done(e)
	}
}

func (p *Provider) run(ctx context.Context, e errand) error {
	ctx, cancel := context.WithTimeout(ctx, errandTimeout)
	defer cancel()
	switch {
	case e.unwanted.uid != "":
		return p.deleteUnwanted(ctx, e.unwanted)
	case e.doubtful:
		return p.confirm(ctx, e.uid)
	case e.takeBack:
		return p.takeBack(ctx, e.uid)
	case e.unscheduled:
		return p.failUnscheduled(ctx, e.uid)
	}
	return p.replace(ctx, e.uid)
}
