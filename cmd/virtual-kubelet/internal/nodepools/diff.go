package nodepools

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Changes is the difference between the nodes that run and those that are wanted.
type Changes struct {
	// Removed are the names of nodes that are not wanted any more.
	Removed []string
	// Amended are nodes of which only the Overlay changes; they go on running.
	Amended []Node
	// Replaced are nodes of which more changes: they have to be removed and added
	// again.
	Replaced []Node
	// Added are new nodes.
	Added []Node
}

// Empty reports whether there is nothing to do.
func (c *Changes) Empty() bool {
	return len(c.Removed)+len(c.Amended)+len(c.Replaced)+len(c.Added) == 0
}

// Diff compares the nodes that run, by name, with those that are wanted.
func Diff(running map[string]Node, wanted []Node) Changes {
	var c Changes
	stay := map[string]bool{}
	for _, next := range wanted {
		stay[next.Name] = true
		now, runs := running[next.Name]
		switch {
		case !runs:
			c.Added = append(c.Added, next)
		case !sameButOverlay(now, next):
			c.Replaced = append(c.Replaced, next)
		case !equality.Semantic.DeepEqual(now.Overlay, next.Overlay):
			c.Amended = append(c.Amended, next)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(running)) {
		if !stay[name] {
			c.Removed = append(c.Removed, name)
		}
	}
	return c
}

func sameButOverlay(a, b Node) bool {
	return a.Name == b.Name && a.OS == b.OS && a.Provider == b.Provider && a.ProviderConfig == b.ProviderConfig && a.Port == b.Port
}
