package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits are the limits of a group; what is zero is left as it is.
type Limits struct {
	CPUShares, CPUQuota, CPUPeriod int64
	// Memory and Swap (which includes memory) are in bytes; -1 is no limit.
	Memory, Swap int64
	// Unified are files of the v2 hierarchy and what to write into them.
	Unified map[string]string
}

// file is something to be written into a group.
type file struct{ hierarchy, name, value string }

// Limit sets limits. Hierarchies that are not there are left out.
func (g Group) Limit(l Limits) error {
	var errs []error
	for _, f := range l.files() {
		errs = append(errs, g.write(f))
	}
	return errors.Join(errs...)
}

// Unenforced names those of the limits that have no effect here, since there is no
// hierarchy with a controller for them: "cpu" (a quota; shares are no limit),
// "memory", "swap", and files of the v2 hierarchy.
func (h *Hierarchies) Unenforced(l Limits) []string {
	var names []string
	if l.CPUQuota > 0 && !h.controls("cpu") {
		names = append(names, "cpu")
	}
	if l.Memory > 0 && !h.controls("memory") {
		names = append(names, "memory")
	}
	if l.Swap > 0 && !h.controlsUnified("memory") {
		names = append(names, "swap")
	}
	for _, name := range slices.Sorted(maps.Keys(l.Unified)) {
		if controller, _, _ := strings.Cut(name, "."); !h.controlsUnified(controller) {
			names = append(names, name)
		}
	}
	return names
}

func (h *Hierarchies) controls(controller string) bool {
	return h != nil && h.dirs[controller] != "" || h.controlsUnified(controller)
}

// controlsUnified tells whether our groups of the v2 hierarchy have a controller.
func (h *Hierarchies) controlsUnified(controller string) bool {
	if h == nil || h.dirs[unified] == "" {
		return false
	}
	have, _ := os.ReadFile(filepath.Join(h.dirs[unified], "cgroup.subtree_control"))
	return controller == "cgroup" || slices.Contains(strings.Fields(string(have)), controller)
}

func (g Group) write(f file) error {
	dir, ok := g[f.hierarchy]
	if !ok {
		return nil
	}
	path := filepath.Join(dir, f.name)
	if _, err := os.Stat(path); err != nil {
		// The controller is not in this hierarchy, but in another, or nowhere.
		return nil
	}
	if err := os.WriteFile(path, []byte(f.value), 0o644); err != nil {
		return fmt.Errorf("limit %s of %s: %w", f.value, f.name, err)
	}
	return nil
}

func (l Limits) files() []file {
	var files []file
	if l.CPUShares > 0 {
		files = append(files,
			file{"cpu", "cpu.shares", strconv.FormatInt(l.CPUShares, 10)},
			file{unified, "cpu.weight", strconv.FormatInt(weight(l.CPUShares), 10)})
	}
	if l.CPUPeriod > 0 {
		files = append(files, file{"cpu", "cpu.cfs_period_us", strconv.FormatInt(l.CPUPeriod, 10)})
	}
	if l.CPUQuota != 0 {
		period := max(l.CPUPeriod, 0)
		if period == 0 {
			period = 100000
		}
		files = append(files,
			file{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(max(l.CPUQuota, -1), 10)},
			file{unified, "cpu.max", fmt.Sprintf("%s %d", limitOrMax(l.CPUQuota), period)})
	}
	if l.Memory != 0 {
		files = append(files,
			file{"memory", "memory.limit_in_bytes", strconv.FormatInt(max(l.Memory, -1), 10)},
			file{unified, "memory.max", limitOrMax(l.Memory)})
	}
	if l.Swap > 0 && l.Swap >= l.Memory {
		files = append(files, file{unified, "memory.swap.max", strconv.FormatInt(l.Swap-max(l.Memory, 0), 10)})
	}
	for name, value := range l.Unified {
		files = append(files, file{unified, name, value})
	}
	return files
}

func limitOrMax(v int64) string {
	if v < 0 {
		return "max"
	}
	return strconv.FormatInt(v, 10)
}

// weight turns shares (2 to 262144) into a v2 weight (1 to 10000).
func weight(shares int64) int64 {
	shares = min(max(shares, 2), 262144)
	return 1 + (shares-2)*9999/262142
}
