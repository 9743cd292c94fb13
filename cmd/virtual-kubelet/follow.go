package main

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

const (
	// pollInterval is how often the file is looked at. It counts once it was
	// the same twice: half a file has fewer nodes, and may be as valid.
	pollInterval = 2 * time.Second
	// retryInterval is between two attempts to do what has failed.
	retryInterval = 30 * time.Second
)

// follow brings the fleet in line with the file whenever that changes, until ctx
// ends. At the time retry, unless it is zero, it tries again what has failed.
func (f *virtualFleet) follow(ctx context.Context, retry time.Time) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	last := f.taken
	var told string
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		if f.dropTaken(ctx) {
			retry = time.Now()
		}
		now := last.again()
		settled := maps.Equal(now, last)
		last = now
		due := !retry.IsZero() && !time.Now().Before(retry)
		changed := !maps.Equal(now, f.taken)
		if !settled || !changed && !due {
			continue
		}
		wanted, read, err := f.load(now)
		if last = read; !maps.Equal(read, now) {
			continue // it names other files than before, which have to settle, too
		}
		f.taken, retry = read, time.Time{}
		if err != nil {
			f.loads.note(f, err, changed)
			if changed {
				log.G(ctx).WithError(err).Error("The file of the node pools cannot be used; the nodes stay as they are")
			}
			if f.addFailed(ctx) {
				retry = time.Now().Add(retryInterval)
			}
			continue
		}
		waiting, err := f.apply(ctx, wanted)
		if ctx.Err() != nil {
			continue
		}
		f.loads.note(f, err, changed)
		if waiting || err != nil {
			retry = time.Now().Add(retryInterval)
		}
		if err == nil {
			told = ""
		} else if err.Error() != told {
			told = err.Error()
			log.G(ctx).WithError(err).Error("Not all nodes are as the file wants them; the others are, and it is tried again")
		}
	}
}

// dropTaken takes the nodes out of the fleet that another process has taken, as this one
// stood still, so that they are added again: they wait then until that process has
// ended. It reports whether there are any.
func (f *virtualFleet) dropTaken(ctx context.Context) bool {
	var taken []string
	for name := range f.nodes {
		if n := f.fleet.Node(name); n != nil && ended(n) && errors.Is(n.Err(), node.ErrNodeTaken) {
			taken = append(taken, name)
			f.failed[name] = f.nodes[name].Node
		}
	}
	if len(taken) == 0 {
		return false
	}
	if err := f.remove(ctx, taken, nodeutil.KeepingReady()); err != nil {
		log.G(ctx).WithError(err).Error("A node that another process has taken cannot be taken out of the fleet")
	}
	return true
}

// addFailed tries again to add the nodes that could not be added, while the file cannot
// be used. It reports whether there are any left.
func (f *virtualFleet) addFailed(ctx context.Context) bool {
	for name, n := range f.failed {
		if f.nodes[name] != nil || ctx.Err() != nil {
			continue
		}
		added, err := f.add(ctx, n, false)
		if err != nil {
			continue // it was logged before, and is tried again
		}
		f.nodes[name] = added
		delete(f.failed, name)
	}
	return len(f.failed) > 0
}

// apply has the fleet have the nodes that are wanted. The error tells of single
// nodes; the others are as they should be. It has to be called again while waiting,
// as well.
func (f *virtualFleet) apply(ctx context.Context, wanted *nodepools.Wanted) (waiting bool, err error) {
	changes := f.changes(wanted)
	clear(f.failed)
	errs := []error{f.remove(ctx, changes.Removed)}
	var replaced []string
	for _, n := range changes.Replaced {
		replaced = append(replaced, n.Name)
	}
	ours := map[string]bool{} // whose Nodes are, whatever provider they had
	for _, name := range replaced {
		ours[name] = true
	}
	errs = append(errs, f.remove(ctx, replaced, nodeutil.KeepingReady())) // they are back at once
	for _, n := range changes.Amended {
		f.nodes[n.Name].said.change(n.Overlay)
		f.nodes[n.Name].Node = n
	}
	for _, n := range append(changes.Replaced, changes.Added...) {
		if ctx.Err() != nil {
			break
		}
		added, err := f.add(ctx, n, ours[n.Name])
		if err != nil {
			f.failed[n.Name] = n
			errs = append(errs, err)
			continue
		}
		f.nodes[n.Name] = added
	}
	if !changes.Empty() {
		log.G(ctx).WithFields(log.Fields{
			"added": len(changes.Added), "removed": len(changes.Removed),
			"changed": len(changes.Amended), "replaced": len(changes.Replaced), "nodes": len(f.nodes),
		}).Info("Applied a change of the nodes")
	}
	waiting, err = f.deleteLeft(ctx, wanted)
	return waiting, errors.Join(append(errs, err)...)
}

func (f *virtualFleet) changes(wanted *nodepools.Wanted) nodepools.Changes {
	running := make(map[string]nodepools.Node, len(f.nodes))
	for name, n := range f.nodes {
		running[name] = n.Node
	}
	return nodepools.Diff(running, wanted.Nodes)
}
