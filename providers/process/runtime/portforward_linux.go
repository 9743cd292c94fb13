package runtime

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

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
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(reachable(addresses).String(), strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("port %d: %w", port, err)
	}
	return conn, nil
}

// reachable is where to connect to one of the addresses at which a pod listens:
// preferably that of the loopback, as clients of port-forward expect.
func reachable(addresses []netip.Addr) netip.Addr {
	best := addresses[0]
	for _, addr := range addresses {
		switch {
		case addr.IsUnspecified() && addr.Is4(), addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}):
			return netip.AddrFrom4([4]byte{127, 0, 0, 1})
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
