package nodepools

import "k8s.io/apimachinery/pkg/util/validation/field"

func (e *expansion) os(p *pool, at *field.Path) string {
	switch p.OS {
	case "":
		return e.OS
	case "linux", "windows":
	default:
		e.add(field.NotSupported(at, p.OS, []string{"linux", "windows"}))
	}
	return p.OS
}

// checkBasePort reports whether the pool's nodes have ports of their own that exist.
func (e *expansion) checkBasePort(p *pool, nodes int, at *field.Path) bool {
	switch {
	case p.BasePort == 0:
		return false
	case !e.PortPerNode:
		e.invalid(at, p.BasePort, "all nodes are served on one port: start with --port-per-node, or leave it out")
	case p.BasePort < 0 || p.BasePort+max(nodes, 1)-1 > 65535:
		e.invalid(at, p.BasePort, "%d nodes have no ports from there on: use one from 1 on such that the last is at most 65535", nodes)
	default:
		return true
	}
	return false
}

// takePorts records the nodes' ports, and refuses those that other nodes have.
func (e *expansion) takePorts(nodes []Node, at *field.Path) {
	for _, n := range nodes {
		if other, taken := e.ports[n.Port]; taken {
			e.invalid(at, nodes[0].Port, "node %s would have the port %d of node %s: use another base port", n.Name, n.Port, other)
			return
		}
		e.ports[n.Port] = n.Name
	}
}
