//go:build linux

package supervisor

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const cgroupRoot = "/sys/fs/cgroup"

// findCgroups returns the control groups of containers, which runc names by
// their ids.
func findCgroups(ids map[string]bool) []string {
	var found []string
	if len(ids) == 0 {
		return nil
	}
	_ = filepath.WalkDir(cgroupRoot, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && ids[entry.Name()] {
			found = append(found, path)
		}
		return nil // groups come and go while this looks
	})
	return found
}

// removeCgroups removes groups, as far as they are there, and what gets empty
// above them. The kernel does not remove one with processes, so nothing in use
// can go.
func removeCgroups(groups []string) {
	for _, path := range groups {
		removeTree(path)
		for parent := filepath.Dir(path); !isHierarchy(parent); parent = filepath.Dir(parent) {
			if err := syscall.Rmdir(parent); err != nil && err != syscall.ENOENT {
				break
			}
		}
	}
}

// removeTree removes a group and those that a container made in it.
func removeTree(path string) {
	entries, _ := os.ReadDir(path)
	for _, entry := range entries {
		if entry.IsDir() {
			removeTree(filepath.Join(path, entry.Name()))
		}
	}
	_ = syscall.Rmdir(path)
}

// isHierarchy says whether the path is the root of a hierarchy (version 1 has
// several in one directory).
func isHierarchy(path string) bool {
	var here, above syscall.Stat_t
	if !strings.HasPrefix(path, cgroupRoot+"/") {
		return true
	}
	if syscall.Stat(path, &here) != nil || syscall.Stat(filepath.Dir(path), &above) != nil {
		return false // it is gone already; what is above it may not be
	}
	return here.Dev != above.Dev
}
