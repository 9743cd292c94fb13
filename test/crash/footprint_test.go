//go:build integration || containers

package crash

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// footprint is where both providers leave traces of pods.
type footprint struct {
	root   string // the provider's directory
	cgroup string // above the control groups of all pods
}

func footprintIn(t *testing.T, root string) footprint {
	t.Helper()
	must(t, os.MkdirAll(root, 0o711))
	f := footprint{root, fmt.Sprintf("/crash-%d", os.Getpid())}
	t.Cleanup(func() {
		for _, group := range slices.Backward(f.groups()) {
			_ = os.Remove(group)
		}
		for _, mount := range f.mounts(t) { // if the test has failed
			_ = unix.Unmount(mount, unix.MNT_DETACH)
		}
		must(t, os.RemoveAll(root))
	})
	return f
}

// left is what there is of any pod.
func (f footprint) left(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, kind := range []string{"pods", "logs"} {
		entries, err := os.ReadDir(filepath.Join(f.root, kind))
		must(t, err)
		for _, e := range entries {
			left = append(left, filepath.Join(kind, e.Name()))
		}
	}
	for _, mount := range f.mounts(t) {
		left = append(left, "mount "+mount)
	}
	for _, group := range f.groups() {
		switch filepath.Base(group) {
		case filepath.Base(f.cgroup), "shims": // the node's own
		default:
			left = append(left, "control group "+group)
		}
	}
	return left
}

// mounts are the paths below the provider's directory that something is mounted at.
func (f footprint) mounts(t *testing.T) []string {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var mounts []string
	for line := range strings.Lines(string(info)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], f.root+"/") {
			mounts = append(mounts, fields[4])
		}
	}
	return mounts
}

// groups are the control groups of the node and of all pods, each after the one
// that it is in.
func (f footprint) groups() []string {
	var groups []string
	tops, _ := filepath.Glob("/sys/fs/cgroup/*" + f.cgroup)
	for _, top := range append(tops, "/sys/fs/cgroup"+f.cgroup) {
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return nil // groups come and go
		})
	}
	return groups
}

// processesWith returns the command lines, by process, that have both texts.
func processesWith(t *testing.T, one, other string) map[int]string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	found := map[int]string{}
	for _, path := range paths {
		content, _ := os.ReadFile(path) // the process may have ended
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if command := strings.ReplaceAll(string(content), "\x00", " "); err == nil && strings.Contains(command, one) && strings.Contains(command, other) {
			found[pid] = command
		}
	}
	return found
}
