package mock

import (
	"fmt"
	"net/netip"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// addresses gives each pod one of its own.
type addresses struct {
	prefix netip.Prefix
	last   netip.Addr
	used   map[netip.Addr]bool
}

func newAddresses(prefix netip.Prefix) *addresses {
	prefix = prefix.Masked()
	return &addresses{prefix: prefix, last: prefix.Addr(), used: map[netip.Addr]bool{}}
}

// take returns an address that nobody has, as late as possible one that
// somebody had.
func (a *addresses) allocate() (string, error) {
	for addr, wrapped := a.last.Next(), false; ; addr = addr.Next() {
		if !a.prefix.Contains(addr) {
			if wrapped {
				return "", errdefs.AsUnavailable(fmt.Errorf("no address is left in %s for another pod", a.prefix))
			}
			addr, wrapped = a.prefix.Addr(), true // Next skips the network's own
			continue
		}
		if !a.used[addr] {
			a.used[addr] = true
			a.last = addr
			return addr.String(), nil
		}
	}
}

// reserve marks an address as taken.
func (a *addresses) reserve(text string) {
	if addr, err := netip.ParseAddr(text); err == nil {
		a.used[addr] = true
	}
}

func (a *addresses) release(text string) {
	if addr, err := netip.ParseAddr(text); err == nil {
		delete(a.used, addr)
	}
}
