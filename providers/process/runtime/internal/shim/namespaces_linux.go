package shim

import (
	"fmt"
	"os"
)

// namespaces are descriptors of the container's namespaces, for exec.
type namespaces struct {
	mount, uts, ipc, cgroup, pid *os.File
}

// open opens the namespaces of a process. A second call replaces the first.
func (n *namespaces) open(pid int) {
	n.close()
	n.mount, _ = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	n.uts, _ = os.Open(fmt.Sprintf("/proc/%d/ns/uts", pid))
	n.ipc, _ = os.Open(fmt.Sprintf("/proc/%d/ns/ipc", pid))
	n.cgroup, _ = os.Open(fmt.Sprintf("/proc/%d/ns/cgroup", pid))
	n.pid, _ = os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
}

func (n *namespaces) close() {
	closeAll(n.mount, n.uts, n.ipc, n.cgroup, n.pid)
	*n = namespaces{}
}
