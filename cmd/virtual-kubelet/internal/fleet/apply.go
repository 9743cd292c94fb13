package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// apply adds, changes and removes nodes so that the set has those that are wanted. An
// error is about single nodes; the others are as wanted. If waiting is true, apply has to
// be called again, also without an error.
func (s *nodeSet) apply(ctx context.Context, wanted *nodepools.Wanted) (waiting bool, err error) {
	changes := s.changes(wanted)
	clear(s.failed)
	s.forgetUnwanted(wanted)
	var replaced []string
	for _, n := range changes.Replaced {
		replaced = append(replaced, n.Name)
		if s.hasNode(n.Name) {
			s.adopt[n.Name] = true
		}
	}
	for _, n := range changes.Amended {
		s.nodes[n.Name].provider.change(n.Overlay)
		s.nodes[n.Name].Node = n
	}
	removals := append(s.removalsInTime(ctx, changes.Removed),
		s.removalsInTime(ctx, replaced, nodeutil.KeepingReady())...) // they are back at once
	changed := s.exchange(ctx, removals, append(changes.Added, changes.Replaced...))
	if !changes.Empty() {
		log.G(ctx).WithFields(log.Fields{
			"added": len(changes.Added), "removed": len(changes.Removed),
			"changed": len(changes.Amended), "replaced": len(changes.Replaced), "nodes": len(s.nodes),
		}).Info("Applied a change of the nodes")
	}
	waiting, err = s.deleteLeft(ctx, wanted)
	return waiting, errors.Join(changed, err)
}

// hasNode reports whether the Node of a node that runs is this process's: it is not as long
// as it may be refused.
func (s *nodeSet) hasNode(name string) bool {
	if n := s.fleet.Node(name); n != nil {
		select {
		case <-n.Ready():
			return true
		default:
		}
	}
	return s.nodes[name].adopts
}

// forgetUnwanted drops from s.adopt the nodes that are not wanted any more.
func (s *nodeSet) forgetUnwanted(wanted *nodepools.Wanted) {
	maps.DeleteFunc(s.adopt, func(name string, _ bool) bool {
		return !slices.ContainsFunc(wanted.Nodes, func(n nodepools.Node) bool { return n.Name == name })
	})
}

func (s *nodeSet) changes(wanted *nodepools.Wanted) nodepools.Changes {
	running := make(map[string]nodepools.Node, len(s.nodes))
	for name, n := range s.nodes {
		running[name] = n.Node
		if n.removing { // it has to end also if it is wanted again
			running[name] = nodepools.Node{Name: name}
		}
	}
	return nodepools.Diff(running, wanted.Nodes)
}
