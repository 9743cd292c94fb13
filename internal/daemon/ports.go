package daemon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports of FreePorts are below those that outgoing connections get by default
// (net.ipv4.ip_local_port_range of Linux begins at 32768): a connection of another test could else
// take one before the daemon listens on it.
const firstPort, lastPort = 10000, 19999

var given struct {
	sync.Mutex
	ports map[int]bool
}

// FreePorts returns ports of 127.0.0.1 on which nothing listens, for daemons that cannot choose one
// themselves. Each call in a process returns other ones. It may be called concurrently.
func FreePorts(n int) (ports []int, err error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	for range lastPort - firstPort + 1 {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if given.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // somebody has it
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		given.ports[port] = true
		ports = append(ports, port)
	}
	return nil, errors.New("find free ports of 127.0.0.1: hardly any from 10000 to 19999 is free: end what listens there")
}
