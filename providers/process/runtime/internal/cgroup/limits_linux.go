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

// Limits are the limits of a group; what is zero is left as it is, but for Swap.
type Limits struct {
	CPUShares, CPUQuota, CPUPeriod int64
	// Memory and Swap (which includes memory) are in bytes; -1 is no limit. Without Swap
	// nothing is swapped, as far as the kernel can do that.
	Memory, Swap int64
	// Processes is how many processes and threads there may be; -1 is no limit. It
	// is set where it can be.
	Processes int64
	// Unified are files of the v2 hierarchy and what to write into them.
	Unified map[string]string
}

// file is something to be written into a group. Of the files with the same limit
// one at least must be there.
type file struct{ hierarchy, name, value, limit string }

// Limit sets limits. One that no hierarchy takes is an error, if it is one of
// those that Unenforced names.
func (g Group) Limit(l Limits) error {
	var errs []error
	taken := map[string]bool{"": true}
	files := l.files()
	for _, f := range files {
		was, err := g.write(f)
		if was {
			taken[f.limit] = true
		}
		if f.name != memoryAndSwap {
			errs = append(errs, err)
		}
	}
	for _, f := range files {
		if !taken[f.limit] {
			taken[f.limit] = true
			errs = append(errs, fmt.Errorf("limit %s of %s: there is no such file in the control group", f.value, f.limit))
		}
	}
	return errors.Join(errs...)
}

// Demands reports whether l has limits that must hold.
func (l Limits) Demands() bool {
	return l.CPUQuota > 0 || l.Memory > 0 || l.Swap > 0 || len(l.Unified) > 0
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

// Enforced is l without the limits that Unenforced names.
func (h *Hierarchies) Enforced(l Limits) Limits {
	l.Unified = maps.Clone(l.Unified)
	for _, name := range h.Unenforced(l) {
		switch name {
		case "cpu":
			l.CPUQuota, l.CPUPeriod = 0, 0
		case "memory":
			l.Memory = 0
		case "swap":
			l.Swap = -1
		default:
			delete(l.Unified, name)
		}
	}
	return l
}

func (h *Hierarchies) controls(controller string) bool {
	return h != nil && h.dirs[controller] != "" || h.controlsUnified(controller)
}

// controlsUnified reports whether our groups of the v2 hierarchy have a controller.
func (h *Hierarchies) controlsUnified(controller string) bool {
	if h == nil || h.dirs[unified] == "" {
		return false
	}
	if _, err := os.Stat(h.dirs[unified]); errors.Is(err, os.ErrNotExist) {
		restore(h.dirs[unified])
	}
	have, _ := os.ReadFile(filepath.Join(h.dirs[unified], "cgroup.subtree_control"))
	return controller == "cgroup" || slices.Contains(strings.Fields(string(have)), controller)
}

// write reports whether there is such a file.
func (g Group) write(f file) (bool, error) {
	dir, ok := g[f.hierarchy]
	if !ok {
		return false, nil
	}
	path := filepath.Join(dir, f.name)
	if _, err := os.Stat(path); err != nil {
		// The controller is not in this hierarchy, but in another, or nowhere.
		return false, nil
	}
	if err := os.WriteFile(path, []byte(f.value), 0o644); err != nil {
		return true, fmt.Errorf("limit %s of %s: %w", f.value, f.name, err)
	}
	return true, nil
}

// memoryAndSwap limits both in v1, and is never below the limit of memory: to raise that
// it is written before, to lower it after, and what is refused is no error.
const memoryAndSwap = "memory.memsw.limit_in_bytes"

func (l Limits) files() []file {
	var files []file
	if l.CPUShares > 0 {
		files = append(files,
			file{"cpu", "cpu.shares", strconv.FormatInt(l.CPUShares, 10), ""},
			file{unified, "cpu.weight", strconv.FormatInt(weight(l.CPUShares), 10), ""})
	}
	if l.CPUPeriod > 0 {
		files = append(files, file{"cpu", "cpu.cfs_period_us", strconv.FormatInt(l.CPUPeriod, 10), ""})
	}
	if l.CPUQuota != 0 {
		period := max(l.CPUPeriod, 0)
		if period == 0 {
			period = 100000
		}
		must := demand("cpu", l.CPUQuota)
		files = append(files,
			file{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(max(l.CPUQuota, -1), 10), must},
			file{unified, "cpu.max", fmt.Sprintf("%s %d", limitOrMax(l.CPUQuota), period), must})
	}
	if l.Memory != 0 {
		must := demand("memory", l.Memory)
		memory := file{"memory", "memory.limit_in_bytes", strconv.FormatInt(max(l.Memory, -1), 10), must}
		if l.Swap == 0 {
			both := file{"memory", memoryAndSwap, memory.value, ""}
			files = append(files, both, memory, both)
		} else {
			files = append(files, memory)
		}
		files = append(files,
			file{unified, "memory.max", limitOrMax(l.Memory), must},
			// A container that lost one of its processes is not what it seems to be.
			file{unified, "memory.oom.group", "1", ""})
	}
	switch {
	case l.Swap == 0:
		files = append(files, file{unified, "memory.swap.max", "0", ""})
	case l.Swap > 0 && l.Swap >= l.Memory:
		files = append(files, file{unified, "memory.swap.max", strconv.FormatInt(l.Swap-max(l.Memory, 0), 10), "swap"})
	}
	if l.Processes != 0 {
		files = append(files,
			file{"pids", "pids.max", limitOrMax(l.Processes), ""},
			file{unified, "pids.max", limitOrMax(l.Processes), ""})
	}
	for _, name := range slices.Sorted(maps.Keys(l.Unified)) {
		files = append(files, file{unified, name, l.Unified[name], name})
	}
	return files
}

// demand is the name of a limit that must hold, or nothing for none.
func demand(name string, value int64) string {
	if value < 0 {
		return ""
	}
	return name
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
