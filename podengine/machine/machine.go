package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// Node is the node that an engine is for.
type Node struct {
	nodeutil.ProviderConfig
	Name          string
	ClusterDomain string
	// Sent says that pods come from another process, with what is in their volumes: see
	// podengine.Config. Of the ProviderConfig only Node and HostIPs are needed. Claims and runtime
	// classes are not known then; events go to the log.
	Sent bool
}

// NewEngine says in n.Node what the machine has, and makes an engine over the
// runtime, which goes on with the pods that an earlier one left. The
// configuration is valid and complete; adjust changes what is made of it.
func NewEngine(ctx context.Context, n Node, cfg Config, pulls ImageConfig, containers internalapi.RuntimeService, images internalapi.ImageManagerService, adjust ...func(*podengine.Config)) (*Engine, error) {
	resolvConf, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot read how the host resolves names: %w", err)
	}
	memory := totalMemory()
	thresholds, err := eviction.Parse(cfg.EvictionHard)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Root, 0o750); err != nil { // whose file system it is
		return nil, fmt.Errorf("cannot make the directory of the provider's state: %w", err)
	}
	describe(n.Node, cfg, memory, thresholds)
	host := &host{runtime: containers, source: n.Node}
	late := host.learn(ctx)
	if late != nil {
		log.G(ctx).WithError(late).Warn("The container runtime does not answer: the node is not ready until it does")
	}
	host.describe(n.Node)
	begin := metav1.Now()
	host.pressure = conditions(nil, nil, begin)
	allocatable := n.Node.Status.Allocatable.DeepCopy()
	client := volume.Client{Interface: n.Client}
	config := podengine.Config{
		Boot: bootID(),
		Eviction: podengine.Eviction{
			Thresholds:  thresholds,
			Levels:      levels(cfg.Root, images),
			ImagesApart: imagesApart(cfg.Root, images),
			Report:      host.underPressure,
		},
		Node: convert.Node{
			Name:           n.Name,
			ClusterDomain:  n.ClusterDomain,
			LogRoot:        cfg.LogRoot,
			SeccompRoot:    filepath.Join(cfg.Root, "seccomp"),
			SeccompDefault: cfg.SeccompDefault,
			MachineMemory:  memory,
			HugePageSizes:  hugePageSizes("/sys/kernel/mm/hugepages"),
		},
		Runtime:    containers,
		Images:     images,
		Root:       cfg.Root,
		Objects:    n.Objects,
		Services:   n.Services,
		Tokens:     client,
		Claims:     client,
		NodeLabels: labelsOf(client, n.Name),
		Events:     n.Events,
		Metrics:    n.Metrics,
		DNS: podspec.DNS{
			ClusterServers: cfg.ClusterDNS,
			ClusterDomain:  n.ClusterDomain,
			Host:           podspec.ParseResolvConf(string(resolvConf)),
		},
		HostsFile: func() []byte {
			content, _ := os.ReadFile("/etc/hosts") // a host may have none
			return content
		},
		HostIPs:         n.HostIPs,
		NodeAllocatable: func() corev1.ResourceList { return allocatable },
		AllowHostPath:   HostPaths(cfg.HostPaths),
		NoLinksFollowed: cfg.NoLinksFollowed,
		CgroupParent:    cfg.CgroupParent,
		FirstUserID:     cfg.UserNamespaceFirstID,
		UnsafeSysctls:   cfg.AllowedUnsafeSysctls,
		Logs:            cfg.logLimits(),
		LogLinks:        cfg.LogLinks,
		ImageGC:         pulls.gc(),
		ImageVerification: podengine.ImageVerification{
			Policy:  pulls.ImagePullCredentialsVerificationPolicy,
			Allowed: pulls.PreloadedImagesVerificationAllowlist,
		},
		ParallelPulls: pulls.parallelPulls(),
	}
	if n.Sent {
		withoutCluster(&config)
	} else {
		config.RuntimeClasses = runtimeClasses{n.Client.NodeV1().RuntimeClasses()}
	}
	for _, f := range adjust {
		f(&config)
	}
	engine, err := podengine.New(ctx, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e := &Engine{Engine: engine, host: host, cancel: cancel}
	if late != nil {
		e.running.Go(func() { host.watch(ctx) })
	}
	return e, nil
}

// describe says what the node is and has.
func describe(n *corev1.Node, cfg Config, memory int64, thresholds eviction.Thresholds) {
	n.Status.NodeInfo.OperatingSystem = runtime.GOOS
	n.Status.NodeInfo.Architecture = runtime.GOARCH
	n.Status.NodeInfo.OSImage = osImage()
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		n.Status.NodeInfo.KernelVersion = strings.TrimSpace(string(kernel))
	}
	cpu := resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)
	if cfg.CPU != nil {
		cpu = cfg.CPU
	}
	bytes := resource.NewQuantity(memory, resource.BinarySI)
	if cfg.Memory != nil {
		bytes = cfg.Memory
	}
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    cpu.DeepCopy(),
		corev1.ResourceMemory: bytes.DeepCopy(),
		corev1.ResourcePods:   cfg.Pods.DeepCopy(),
	}
	if storage, ok := storageCapacity(cfg.Root); ok {
		n.Status.Capacity[corev1.ResourceEphemeralStorage] = *storage
	}
	n.Status.Allocatable = cfg.allocatable(n.Status.Capacity, thresholds)
	n.Status.DeclaredFeatures = slices.Clone(declaredFeatures)
	now := metav1.Now()
	n.Status.Conditions = append(conditions(nil, nil, now), corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: now, LastTransitionTime: now,
	})
}

// bootID identifies the run of the machine since it was booted; empty if it is
// not known.
func bootID() string {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// totalMemory is the memory of this machine in bytes, 0 if it is not known.
func totalMemory() int64 {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// hugePageSizes are the sizes of huge pages that there is a directory of in the kernel's, as hugepages-2048kB.
func hugePageSizes(dir string) (sizes []string) {
	entries, _ := os.ReadDir(dir) // not every kernel has huge pages
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), "kB"); ok {
			if size, ok := convert.PageSize(corev1.ResourceName(name + "Ki")); ok {
				sizes = append(sizes, size)
			}
		}
	}
	return sizes
}

// HostPaths is a policy that lets pods have what is in the given directories of
// the host; nil, which denies all, where there are none.
func HostPaths(directories []string) func(volume.HostAccess) error {
	if len(directories) == 0 {
		return nil
	}
	return func(a volume.HostAccess) error {
		for _, dir := range directories {
			if rel, err := filepath.Rel(dir, a.Path); err == nil && filepath.IsLocal(rel) {
				return nil
			}
		}
		return fmt.Errorf("hostPath %s is not allowed on this node: add a directory to \"hostPaths\" in the provider's configuration to allow it", a.Path)
	}
}
