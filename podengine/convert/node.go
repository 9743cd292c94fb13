package convert

import (
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Node is what the configuration of pods depends on besides the pods. The zero
// value makes configurations that a runtime takes.
type Node struct {
	// Name of the node, which sandboxes and containers carry as an annotation.
	Name string
	// ClusterDomain is for the FQDNs of pods.
	ClusterDomain string
	// LogRoot is the directory below which each pod has one for its logs.
	LogRoot string
	// SeccompRoot is the directory that Localhost seccomp profiles are relative to.
	SeccompRoot string
	// SeccompDefault makes RuntimeDefault the seccomp profile of containers that
	// name none, in place of Unconfined (KEP-2413).
	SeccompDefault bool
	// MachineMemory is the memory of the machine in bytes, for OOM scores; 0 if
	// it is not known.
	MachineMemory int64
	// HugePageSizes are the sizes that the machine has huge pages of, such as
	// "2MB": containers that do not ask for them are limited to none.
	HugePageSizes []string
	// NoCPUQuota leaves out the quota, so that containers may use more CPU than
	// their limit.
	NoCPUQuota bool
	// OOMGroup has the kernel end all processes of a container that is out of memory, as a
	// kubelet does by default where control groups are those of version 2. Without, it may be
	// one of them, and the container goes on without it.
	OOMGroup bool
	// NoSwap keeps containers out of swap, as a kubelet does by default, on a machine whose control
	// groups are those of version 2 and count swap. Without, those with no memory limit use it.
	NoSwap bool
}

// LogDirectory is where the logs of a pod are: LogRoot/NAMESPACE_NAME_UID.
func (n Node) LogDirectory(pod *corev1.Pod) string {
	return filepath.Join(n.LogRoot, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// LogPath is where the log of a container's attempt is, below the pod's directory.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}
