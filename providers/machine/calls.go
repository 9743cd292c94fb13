package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// creationTimeout is how long the driver may take to make a machine, and driverTimeout how
	// long for anything else.
	creationTimeout, driverTimeout = 10 * time.Minute, time.Minute
	// creations and deletions are how many machines the driver makes and deletes at the same time, and
	// creationsInReserve how many of the first may be for the reserve.
	creations, deletions, creationsInReserve = 10, 10, 5
)

// limiter lets so many at a time do something.
type limiter chan struct{}

// take waits for a place, and returns what leaves it.
func (l limiter) take(ctx context.Context) (done func(), err error) {
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// delete has the driver delete a machine.
func (b *backend) delete(ctx context.Context, m Machine) error {
	done, err := b.deletions.take(ctx)
	if err != nil {
		return errdefs.AsUnavailable(err)
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	if err := b.driver.Delete(ctx, m); err != nil {
		log.G(ctx).WithField("machine", m.Name).WithError(err).Warn("Cannot delete a machine; trying again")
		return errdefs.AsUnavailable(fmt.Errorf("machine %s cannot be deleted: %w", m.Name, err))
	}
	log.G(ctx).WithField("machine", m.Name).Info("Deleted a machine")
	return nil
}

// listing is a list of the machines of this node.
type listing struct {
	began    time.Time
	machines map[string]Machine // by name; not changed any more
	err      error
}

// list lists the machines of this node, and records what it shows. The list begins after the
// call.
func (b *backend) list(ctx context.Context) (map[string]Machine, error) {
	return b.listAfter(ctx, time.Now())
}

// listAfter returns a list that has begun after a time. Callers share lists, so that many pods that
// are created at the same time do not mean as many lists.
func (b *backend) listAfter(ctx context.Context, earliest time.Time) (map[string]Machine, error) {
	uid, err := b.clusterUID.UID(ctx)
	if err != nil {
		return nil, err
	}
	done, err := b.lists.Take(ctx, "")
	if err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("the machines cannot be listed: an earlier list goes on: %w", err))
	}
	defer done()
	if last := b.last; last.began.After(earliest) {
		return last.machines, last.err
	}
	l := listing{began: time.Now()}
	late, cancel := context.WithTimeoutCause(ctx, driverTimeout, errDriverHangs)
	defer cancel()
	l.machines, l.err = b.askForList(late, uid)
	if l.err == nil {
		b.record(l)
	} else if ctx.Err() != nil {
		return nil, l.err // others ask again
	}
	b.last = l
	return l.machines, l.err
}

var errDriverHangs = errors.New("the driver has not answered in " + driverTimeout.String())

func (b *backend) askForList(ctx context.Context, clusterUID types.UID) (map[string]Machine, error) {
	filter := map[string]string{podgroup.TagClusterName: clip(b.cfg.Cluster, maxTag), podgroup.TagNodeName: clip(b.node, maxTag)}
	found, err := b.driver.List(ctx, filter)
	if err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("the machines cannot be listed: %w", err))
	}
	ours := map[string]Machine{}
	for _, m := range found {
		if b.isOurs(m, clusterUID) {
			ours[m.Name] = m
		}
	}
	return ours, nil
}

// record records what a list shows.
func (b *backend) record(l listing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, m := range l.machines {
		known := b.members[name]
		if known == nil {
			known = &member{since: m.Created}
			if m.Created.IsZero() || m.Created.After(l.began) {
				known.since = l.began
			}
			b.members[name] = known
		}
		if known.spec != nil && !known.listed { // the answer to its creation is late, or lost
			known.since = l.began
		}
		if known.planned && !known.listed && m.Created.After(known.since) && !m.Created.After(l.began) {
			known.since = m.Created // an earlier process has recorded it, and the driver made it later
		}
		if m.Address == "" {
			m.Address = known.machine.Address
		}
		known.machine, known.listed, known.missing, known.warned = m, true, time.Time{}, false
		known.setTags(m.Tags)
	}
	for name, known := range b.members {
		if _, ok := l.machines[name]; ok || known.since.After(l.began) {
			continue
		}
		if known.missing.IsZero() {
			known.missing = l.began
		}
		// No pod can be in it, unless it is of a reserve that is not known any more.
		if known.record == nil && known.listed && (!isReserve(known.machine) || known.machine.State == Ended && !known.planned) {
			delete(b.members, name)
		}
	}
	b.wakeLocked()
}
