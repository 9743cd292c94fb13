//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Clean removes what the containerd in the directory left behind, with the directory.
// It may run again, and for a directory that is not there. The name of the network
// is in the directory if it is not given.
func Clean(dir, networkName string) error {
	c := config{Dir: dir}
	// What names the parts is in the directory, so that is read first.
	ids, sockets := containers(dir)
	groups := findCgroups(ids)
	if networkName == "" {
		name, _ := os.ReadFile(filepath.Join(dir, networkFile)) // there may be none yet
		networkName = string(name)
	}

	errs := []error{killAll(c.file(), c.socket())}
	removeLoopbackResults(ids)
	for _, socket := range sockets {
		_ = os.Remove(socket) // most shims do it
	}
	if strings.HasPrefix(networkName, networkPrefix) {
		errs = append(errs, network{Name: networkName}.remove())
	}
	errs = append(errs, removeShared(), unmountBelow(dir))
	removeCgroups(groups)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up after containerd in %s: %w", dir, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove containerd's directory: %w", err)
	}
	return nil
}

// containers returns the ids of containers and sandboxes that are there, and
// the sockets of their shims.
func containers(dir string) (map[string]bool, []string) {
	ids := map[string]bool{}
	var sockets []string
	bundles, _ := filepath.Glob(filepath.Join(dir, "state/io.containerd.runtime.v2.task/*/*"))
	for _, bundle := range bundles {
		ids[filepath.Base(bundle)] = true
		address, _ := os.ReadFile(filepath.Join(bundle, "address"))
		if path, ok := strings.CutPrefix(strings.TrimSpace(string(address)), "unix://"); ok && filepath.Dir(path) == shimSockets {
			sockets = append(sockets, path)
		}
	}
	return ids, sockets
}

// removeLoopbackResults removes what libcni remembers of the loopback network,
// which has the same name in every containerd.
func removeLoopbackResults(ids map[string]bool) {
	for id := range ids {
		paths, _ := filepath.Glob(filepath.Join(cniResults, "*-"+id+"-*"))
		for _, path := range paths {
			_ = os.Remove(path)
		}
	}
}
