package zun

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// endTimeout is how long a page of a list waits for deletions.
	endTimeout = 5 * time.Second
	// The delay before the deletion of a capsule that was not accepted is tried again.
	firstEndRetry, lastEndRetry = 5 * time.Second, 5 * time.Minute
)

// endFailed deletes the capsules in Error of which containers run, so that these do not run beside those
// of the pods that take the place of their pods, which have failed then. What is not deleted now a later
// list tries again.
func (b *backend) endFailed(ctx context.Context, capsules []*capsule, units []podgroup.Unit) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for i, c := range capsules {
		u := &units[i]
		if c.Status != statusError || u.Over() || b.podOf(c) == nil || b.mayBegin != nil && !b.mayBegin() || !b.refusals.isDue(c.UUID) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		asked := false
		err := b.budget.Do(ctx, podgroup.ActionDelete, func() error {
			asked = true
			return b.Delete(ctx, u, 0)
		})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			c.fail(u)
		case asked:
			delay := b.refusals.add(c.UUID)
			log.G(ctx).WithField("capsule", c.UUID).WithError(err).Warnf("A capsule in Error, of which containers run, is not deleted: trying again in %s", delay)
		}
	}
}

// refusals are the deletions of endFailed that were not accepted, by the UUID of the capsule. They are
// safe for concurrent use.
type refusals struct {
	mu   sync.Mutex
	last map[string]refusal
}

// refusal is the last one of a capsule, and the delay after it.
type refusal struct {
	at    time.Time
	delay time.Duration
}

func (r *refusals) isDue(uuid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.last[uuid]
	return time.Since(last.at) >= last.delay
}

// add adds a refusal, and returns the delay after it. Those of capsules that were not asked for again are
// forgotten.
func (r *refusals) add(uuid string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ string, last refusal) bool { return time.Since(last.at) > 2*lastEndRetry })
	delay := min(max(2*r.last[uuid].delay, firstEndRetry), lastEndRetry)
	if r.last == nil {
		r.last = map[string]refusal{}
	}
	r.last[uuid] = refusal{time.Now(), delay}
	return delay
}
