package cgroup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Group is one control group: its directory in each hierarchy. It can be written
// down and used by another process.
type Group map[string]string

// directories are the group's directories, each once: v1 may have cpu and cpuacct in one.
func (g Group) dirs() []string {
	return slices.Compact(slices.Sorted(maps.Values(g)))
}

// Create makes the group, and the one that it is in if another process with the same
// parent has removed that. One that is there already is no error.
func (g Group) Create() error {
	var errs []error
	for _, dir := range g.dirs() {
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, os.ErrNotExist) {
			restore(filepath.Dir(dir))
			err = os.Mkdir(dir, 0o755)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Add moves a process into the group.
func (g Group) Add(pid int) error {
	var errs []error
	for _, dir := range g.dirs() {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644))
	}
	return errors.Join(errs...)
}

// Processes are the numbers of the processes in the group.
func (g Group) Processes() []int {
	found := map[int]bool{}
	for _, dir := range g.dirs() {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for line := range strings.FieldsSeq(string(data)) {
			// Zero is a process of another PID namespace than ours.
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
				found[pid] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Kill kills all processes at once, also those that are being started; it reports
// whether the kernel can.
func (g Group) Kill() bool {
	dir, ok := g[unified]
	if !ok {
		return false
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644) == nil
}

// Remove removes the group. The kernel needs a moment after the last process has
// ended.
func (g Group) Remove() error {
	var errs []error
	for _, dir := range g.dirs() {
		errs = append(errs, remove(dir))
	}
	return errors.Join(errs...)
}

func remove(dir string) error {
	err := os.Remove(dir)
	for range 20 {
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
		err = os.Remove(dir)
	}
	return err
}
