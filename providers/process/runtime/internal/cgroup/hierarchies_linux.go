package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unified is the key of the v2 hierarchy in Group.
const unified = "unified"

// used are the v1 hierarchies that we take part in. name=systemd is there so
// that a restart of our service does not take the processes with it.
var used = []string{"memory", "pids", "cpu", "cpuacct", "name=systemd"}

// Hierarchies are the places where this process may make control groups.
type Hierarchies struct {
	// dirs are the directories that all our groups are in, by hierarchy.
	dirs map[string]string
}

// Detect finds the hierarchies in which the group parent ("/virtual-kubelet")
// exists or can be made. Where there is none the result is nil.
func Detect(parent string) *Hierarchies {
	mounts, err := mounted("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	h := &Hierarchies{dirs: map[string]string{}}
	for name, mount := range mounts {
		dir := filepath.Join(mount, parent)
		if name == unified {
			delegate(mount, dir)
		}
		if os.MkdirAll(dir, 0o755) == nil && writable(dir) {
			h.dirs[name] = dir
		}
	}
	if len(h.dirs) == 0 {
		return nil
	}
	if dir, ok := h.dirs[unified]; ok {
		enable(dir)
	}
	return h
}

// mounted reads where the hierarchies that we use are mounted.
func mounted(mountinfo string) (map[string]string, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	found := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			found[unified] = fields[4]
		case "cgroup":
			for option := range strings.SplitSeq(kind[2], ",") {
				if slices.Contains(used, option) {
					found[option] = fields[4]
				}
			}
		}
	}
	return found, nil
}

// delegate makes dir in the v2 hierarchy, with all its controllers on the way.
func delegate(mount, dir string) {
	relative, err := filepath.Rel(mount, dir)
	if err != nil {
		return
	}
	at := mount
	for name := range strings.SplitSeq(relative, "/") {
		enable(at)
		at = filepath.Join(at, name)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return
		}
	}
}

// restore makes our parent group again, with its controllers. What fails is seen by those
// who use it.
func restore(dir string) {
	_ = os.Mkdir(dir, 0o755)
	enable(dir)
}

// enable gives the groups below dir those of the controllers that it has.
func enable(dir string) {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for name := range strings.FieldsSeq(string(have)) {
		if slices.Contains([]string{"cpu", "memory", "pids"}, name) {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
		}
	}
}

// writable reports whether groups can be made in a group, by making one. Those of
// processes that were killed meanwhile go; they may be another's of now.
func writable(dir string) bool {
	left, _ := filepath.Glob(filepath.Join(dir, "probe-*"))
	for _, probe := range left {
		_ = os.Remove(probe)
	}
	probe := filepath.Join(dir, fmt.Sprintf("probe-%d", os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil {
		return false
	}
	err := os.Remove(probe)
	return err == nil || errors.Is(err, os.ErrNotExist)
}

// String names the hierarchies, for logs.
func (h *Hierarchies) String() string {
	if h == nil {
		return "none"
	}
	var names []string
	for name := range h.dirs {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// Group is the group with a name below our parent. Of no hierarchies it is empty,
// and all its methods do nothing.
func (h *Hierarchies) Group(name string) Group {
	if h == nil {
		return nil
	}
	g := Group{}
	for hierarchy, dir := range h.dirs {
		g[hierarchy] = filepath.Join(dir, name)
	}
	return g
}

// Tidy removes groups, and then our parent group, where nothing is in them.
func (h *Hierarchies) Tidy(names ...string) {
	if h == nil {
		return
	}
	for _, dir := range h.dirs {
		for _, name := range names {
			_ = os.Remove(filepath.Join(dir, name))
		}
		_ = os.Remove(dir)
	}
}
