package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

const (
	// pollInterval is how often the file is read. A content counts when it was read
	// twice: half a file has fewer nodes, and may be as valid.
	pollInterval = 2 * time.Second
	// retryInterval is between two attempts to do what has failed.
	retryInterval = 30 * time.Second
)

// watch applies the file whenever it changes, until ctx ends. At the time retry, unless
// it is zero, it tries again what has failed.
func (s *nodeSet) watch(ctx context.Context, retry time.Time) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	last := s.applied
	var logged string
	unusable := false // the file, when it was read last
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		if s.dropEnded(ctx) {
			retry = time.Now()
		}
		now := last.again()
		settled := maps.Equal(now, last)
		last = now
		due := !retry.IsZero() && !time.Now().Before(retry)
		changed := !maps.Equal(now, s.applied)
		if !settled || !changed && !due {
			continue
		}
		wanted, read, err := s.load(now)
		if last = read; !maps.Equal(read, now) {
			continue // it names other files than before, which have to settle, too
		}
		s.applied, retry = read, time.Time{}
		if err != nil {
			s.reloads.record(s, err, changed)
			if changed {
				unusable = true
				log.G(ctx).WithError(err).Error("The file of the node pools cannot be used; the nodes stay as they are")
			}
			if s.addFailed(ctx) {
				retry = time.Now().Add(retryInterval)
			}
			continue
		}
		if unusable {
			unusable = false
			log.G(ctx).Info("The file of the node pools can be used again")
		}
		waiting, err := s.apply(ctx, wanted)
		if ctx.Err() != nil {
			continue
		}
		s.reloads.record(s, err, changed)
		if waiting || err != nil {
			retry = time.Now().Add(retryInterval)
		}
		if err == nil {
			logged = ""
		} else if err.Error() != logged {
			logged = err.Error()
			log.G(ctx).WithError(err).Error("Not all nodes are as the file wants them; the others are, and it is tried again")
		}
	}
}

// dropEnded removes the nodes from the fleet that have ended by themselves, so that they are
// added again: at once those that another process has taken while this one stood still, since
// they wait then until that has ended, and others after a while. It reports whether there are any.
func (s *nodeSet) dropEnded(ctx context.Context) bool {
	var ended []string
	for name, running := range s.nodes {
		n := s.fleet.Node(name)
		if n == nil || n.Err() == nil {
			continue
		}
		if running.ended.IsZero() {
			running.ended = time.Now()
		}
		if errors.Is(n.Err(), node.ErrNodeTaken) || time.Since(running.ended) >= retryInterval {
			ended = append(ended, name)
			s.failed[name] = running.Node
		}
	}
	if len(ended) == 0 {
		return false
	}
	removals := s.removalsInTime(ctx, ended, nodeutil.KeepingReady())
	runRemovals(removals)
	if err := s.forgetRemoved(removals); err != nil {
		log.G(ctx).WithError(err).Error("A node that has ended cannot be removed from the fleet")
	}
	return true
}

// addFailed tries again to add the nodes that could not be added, while the file cannot
// be used: also those whose earlier provider had not returned, if it has since. It reports
// whether there are any left.
func (s *nodeSet) addFailed(ctx context.Context) bool {
	var removing []string
	for name, n := range s.nodes {
		if n.removing {
			removing = append(removing, name)
		}
	}
	removals := s.removalsInTime(ctx, removing)
	_ = s.exchange(ctx, removals, slices.Collect(maps.Values(s.failed))) // the error was logged before
	return len(s.failed) > 0 || slices.ContainsFunc(removals, func(r *removal) bool { return r.err != nil })
}
