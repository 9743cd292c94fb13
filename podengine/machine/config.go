package machine

import (
	"net/netip"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

// Config is what the configuration files of such providers have in common.
type Config struct {
	// Root is the directory of the provider's state and of volumes. Default
	// /var/lib/virtual-kubelet/NODE.
	Root string `json:"root,omitempty"`
	// LogRoot is where logs of containers are. Default ROOT/logs.
	LogRoot string `json:"logRoot,omitempty"`
	// LogLinks is the directory of a link to each container's log, for log
	// collectors. Default none.
	LogLinks string `json:"logLinks,omitempty"`
	// ClusterDNS are the addresses of the cluster's DNS service. Without them
	// pods resolve names as the host does.
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// HostPaths are the directories of the host of which pods may have what is
	// in them, by hostPath volumes. Default none; "/" allows all.
	HostPaths []string `json:"hostPaths,omitempty"`
	// NoLinksFollowed says that the runtime follows no links in paths of the host:
	// see volume.Options. The provider knows.
	NoLinksFollowed bool `json:"-"`
	// CgroupParent is the parent of the cgroups of all pods. Default that of
	// the runtime.
	CgroupParent string `json:"cgroupParent,omitempty"`
	// AllowedUnsafeSysctls are the sysctls that pods may set besides the safe
	// ones; those that end in * stand for all that begin so. Default none.
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"`
	// SeccompDefault makes RuntimeDefault the seccomp profile of containers that
	// name none. Default false, which leaves them without a profile.
	SeccompDefault bool `json:"seccompDefault,omitempty"`
	// UserNamespaceFirstID is the first of the machine's user and group IDs of
	// which pods with hostUsers: false get 65536 each, the lowest first. Default
	// 65536. Nodes on one machine, a kubelet too, need ranges of their own.
	UserNamespaceFirstID uint32 `json:"userNamespaceFirstID,omitempty"`
	// ContainerLogMaxSize is the size of a container's log at which it is put
	// aside and started again, ContainerLogMaxFiles how many files there are of it
	// at most, 2 at least. Default 10Mi and 5, as a kubelet's; there is no limit
	// if the size is negative.
	ContainerLogMaxSize  *resource.Quantity `json:"containerLogMaxSize,omitempty"`
	ContainerLogMaxFiles *int               `json:"containerLogMaxFiles,omitempty"`
	// CPU, Memory and Pods are what the node has for pods. Default what the
	// machine has, and 110 pods.
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
	Pods   *resource.Quantity `json:"pods,omitempty"`
	// KubeReserved and SystemReserved are what pods do not get of the capacity: cpu,
	// memory and ephemeral-storage. Default none.
	KubeReserved   corev1.ResourceList `json:"kubeReserved,omitempty"`
	SystemReserved corev1.ResourceList `json:"systemReserved,omitempty"`
	// EvictionHard are the amounts below which the node is under pressure and evicts
	// pods: memory.available, nodefs.available, nodefs.inodesFree, imagefs.available,
	// imagefs.inodesFree and pid.available, as quantities or percentages. Default a
	// kubelet's: 100Mi, 10%, 5%, 15%, 5% and none; {} turns all off. What has to stay
	// free of memory and nodefs is not allocatable.
	EvictionHard map[string]string `json:"evictionHard,omitempty"`
}

// Validate returns an error of class InvalidInput for a value that is none.
func (cfg *Config) Validate() error {
	for _, server := range cfg.ClusterDNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return errdefs.InvalidInputf("clusterDNS: %q is no IP address", server)
		}
	}
	for _, path := range append([]string{cfg.Root, cfg.LogRoot, cfg.LogLinks}, cfg.HostPaths...) {
		if path != "" && !filepath.IsAbs(path) {
			return errdefs.InvalidInputf("%q is no absolute path", path)
		}
	}
	for _, pattern := range cfg.AllowedUnsafeSysctls {
		if name := strings.TrimSuffix(pattern, "*"); name == "" || strings.ContainsAny(name, "*/ ") {
			return errdefs.InvalidInputf("allowedUnsafeSysctls: %q is no sysctl such as kernel.msgmax, nor the beginning of one such as kernel.msg*", pattern)
		}
	}
	if err := validateReserved("kubeReserved", cfg.KubeReserved); err != nil {
		return err
	}
	if err := validateReserved("systemReserved", cfg.SystemReserved); err != nil {
		return err
	}
	if _, err := eviction.Parse(cfg.EvictionHard); err != nil {
		return errdefs.InvalidInputf("evictionHard: %w", err)
	}
	if first := cfg.UserNamespaceFirstID; first != 0 && first < 1<<16 {
		return errdefs.InvalidInputf("userNamespaceFirstID is %d: those below 65536 are the machine's own", first)
	}
	if size := cfg.ContainerLogMaxSize; size != nil && size.Sign() == 0 {
		return errdefs.InvalidInputf("containerLogMaxSize is 0: give a size such as 10Mi, or -1 for no limit")
	}
	if files := cfg.ContainerLogMaxFiles; files != nil && *files < 2 {
		return errdefs.InvalidInputf("containerLogMaxFiles is %d: give 2 or more", *files)
	}
	return nil
}

// logLimits are those of the engine.
func (cfg *Config) logLimits() podengine.LogLimits {
	limits := podengine.LogLimits{MaxFiles: ptr.Deref(cfg.ContainerLogMaxFiles, 0)}
	if cfg.ContainerLogMaxSize != nil {
		limits.MaxSize = cfg.ContainerLogMaxSize.Value()
	}
	return limits
}

// Complete fills in the defaults for a node.
func (cfg *Config) Complete(nodeName string) {
	if cfg.Root == "" {
		cfg.Root = filepath.Join("/var/lib/virtual-kubelet", nodeName)
	}
	if cfg.LogRoot == "" {
		cfg.LogRoot = filepath.Join(cfg.Root, "logs")
	}
	if cfg.Pods == nil {
		pods := resource.MustParse("110")
		cfg.Pods = &pods
	}
}
