//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// These directories are the same for all containerds, which make them again when
// they need them. The names of shims' sockets have a hash.
const (
	shimSockets = "/run/containerd/s"
	cniResults  = "/var/lib/cni/results"
)

// commonChains are made by the portmap plugin and never removed by it.
var commonChains = []string{"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ"}

// lockNetworks waits until no other supervisor or cleaner of this machine makes a
// network, or removes what networks share. The kernel drops the lock with the
// process.
func lockNetworks() (unlock func(), err error) {
	dir, err := os.Open("/sys/class/net")
	if err != nil {
		return nil, fmt.Errorf("lock the networks: %w", err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the networks: %w", err), dir.Close())
	}
	return func() { _ = dir.Close() }, nil
}

// removeShared removes what all containerds use, as the last of them. Of several
// that end at once, one does it; none begins meanwhile, which would miss it.
func removeShared() error {
	unlock, err := lockNetworks()
	if err != nil {
		return err
	}
	defer unlock()
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the machine's networks: %w", err)
	}
	if slices.ContainsFunc(interfaces, func(i net.Interface) bool { return strings.HasPrefix(i.Name, networkPrefix) }) {
		return nil
	}
	for _, dir := range []string{shimSockets, filepath.Dir(shimSockets), cniResults, filepath.Dir(cniResults)} {
		_ = os.Remove(dir) // it stays if somebody else has something in it
	}
	return removeCommonChains()
}

// removeCommonChains does nothing while a pod of anybody has ports.
func removeCommonChains() error {
	rules, err := natRules()
	if err != nil {
		return err
	}
	for _, rule := range rules {
		if rule[0] == "-A" && rule[1] == commonChains[0] {
			return nil
		}
	}
	var errs []error
	for _, rule := range rules {
		if at := slices.Index(rule, "-j"); rule[0] == "-A" && at >= 0 && at+1 < len(rule) && slices.Contains(commonChains, rule[at+1]) {
			errs = append(errs, nat(append([]string{"-D"}, rule[1:]...)...))
		}
	}
	for _, rule := range rules {
		if rule[0] == "-N" && slices.Contains(commonChains, rule[1]) {
			errs = append(errs, nat("-F", rule[1]), nat("-X", rule[1]))
		}
	}
	return errors.Join(errs...)
}
