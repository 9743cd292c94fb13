package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
)

// dialPod connects to a port on which a process of a pod listens. The network is the
// machine's, so others may listen on other ports of it: those are not the pod's.
func (r *Runtime) dialPod(ctx context.Context, box *sandbox, port int32) (net.Conn, error) {
	if port <= 0 || port > 1<<16-1 {
		return nil, invalid("%d is no port", port)
	}
	processes, err := r.processesOf(box)
	if err != nil {
		return nil, err
	}
	addresses, err := procfs.Listeners(uint16(port), processes)
	if err != nil {
		return nil, fmt.Errorf("port %d: who listens there: %w", port, err)
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("port %d: connection refused: no process of the pod listens there", port)
	}
	conn, err := connect(addresses, uint16(port), func(address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
	if err != nil {
		return nil, fmt.Errorf("port %d: %w", port, err)
	}
	return conn, nil
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// connect connects to a port at one of the addresses at which a pod listens. A machine may
// have no IPv6 loopback address (net.ipv6.conf.all.disable_ipv6): a listener at [::] is
// reached by IPv4 then, unless the port is another's there.
func connect(addresses []netip.Addr, port uint16, dial func(address string) (net.Conn, error)) (net.Conn, error) {
	to := reachable(addresses)
	conn, err := dial(netip.AddrPortFrom(to, port).String())
	if err == nil || to != netip.IPv6Loopback() || !slices.Contains(addresses, netip.IPv6Unspecified()) {
		return conn, err
	}
	if taken, takenErr := procfs.ListensIPv4(port); taken || takenErr != nil {
		return nil, errors.Join(err, takenErr)
	}
	return dial(netip.AddrPortFrom(loopback, port).String())
}

// reachable is where to connect to one of the addresses at which a pod listens:
// preferably that of the loopback, as clients of port-forward expect.
func reachable(addresses []netip.Addr) netip.Addr {
	best := addresses[0]
	for _, addr := range addresses {
		switch {
		case addr.IsUnspecified() && addr.Is4(), addr == loopback:
			return loopback
		case addr.IsUnspecified() || addr.IsLoopback():
			best = addr
		}
	}
	if best.IsUnspecified() {
		return netip.IPv6Loopback()
	}
	return best
}

// processesOf are the processes of a pod's containers.
func (r *Runtime) processesOf(box *sandbox) ([]procfs.Process, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	in := map[int]bool{}
	for _, c := range r.containersOf(box.id) {
		started, running := c.running()
		if !running {
			continue
		}
		// All that descends from the shim is the container's.
		for _, p := range procfs.Below(all, func(p procfs.Process) bool { return p.PID == started.ShimPID && p.Start == started.ShimStart }) {
			in[p.PID] = true
		}
	}
	return where(all, func(p procfs.Process) bool { return in[p.PID] }), nil
}
