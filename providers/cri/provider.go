package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	criclient "k8s.io/cri-client/pkg"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// connectTimeout is how long the runtime may take to answer a call.
const connectTimeout = 2 * time.Minute

// Provider runs pods with a container runtime. Make one with New.
type Provider struct {
	*podengine.Engine
	runtime internalapi.RuntimeService
	images  internalapi.ImageManagerService
}

// Init is what a provider is made with.
type Init struct {
	nodeutil.ProviderConfig
	Config        Config
	NodeName      string
	ClusterDomain string
}

// New connects to the runtime, goes on with the pods that an earlier process
// left there, and says in Init.Node what the machine has.
func New(ctx context.Context, init Init) (*Provider, error) {
	cfg := init.Config
	cfg.complete(init.NodeName)
	p := &Provider{}
	var err error
	if p.runtime, err = criclient.NewRemoteRuntimeService(ctx, cfg.Endpoint, connectTimeout, nil, false); err != nil {
		return nil, fmt.Errorf("cannot connect to the container runtime at %s (set \"endpoint\" in the provider's configuration): %w", cfg.Endpoint, err)
	}
	if p.images, err = criclient.NewRemoteImageService(ctx, cfg.ImageEndpoint, connectTimeout, nil, false); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot connect to the image service at %s: %w", cfg.ImageEndpoint, err), p.runtime.Close(ctx))
	}
	memory := machineMemory()
	if err := p.describe(ctx, init.Node, cfg, memory); err != nil {
		return nil, errors.Join(err, p.disconnect(ctx))
	}
	host, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("cannot read how the host resolves names: %w", err), p.disconnect(ctx))
	}
	client := volume.Client{Interface: init.Client}
	allocatable := init.Node.Status.Allocatable.DeepCopy()
	p.Engine, err = podengine.New(ctx, podengine.Config{
		Node: convert.Node{
			Name:          init.NodeName,
			ClusterDomain: init.ClusterDomain,
			LogRoot:       cfg.LogRoot,
			SeccompRoot:   filepath.Join(cfg.Root, "seccomp"),
			MachineMemory: memory,
		},
		Runtime:  p.runtime,
		Images:   p.images,
		Root:     cfg.Root,
		Objects:  init.Objects,
		Services: init.Services,
		Tokens:   client,
		Claims:   client,
		Events:   init.Events,
		DNS: podspec.DNS{
			ClusterServers: cfg.ClusterDNS,
			ClusterDomain:  init.ClusterDomain,
			Host:           podspec.ParseResolvConf(string(host)),
		},
		HostsFile: func() []byte {
			content, _ := os.ReadFile("/etc/hosts") // a host may have none
			return content
		},
		HostIPs:         init.HostIPs,
		NodeAllocatable: func() corev1.ResourceList { return allocatable },
		AllowHostPath:   allowed(cfg.HostPaths),
		CgroupParent:    cfg.CgroupParent,
	})
	if err != nil {
		return nil, errors.Join(err, p.disconnect(ctx))
	}
	return p, nil
}

// Close ends the provider. Containers run on.
func (p *Provider) Close() error {
	return errors.Join(p.Engine.Close(), p.disconnect(context.Background()))
}

func (p *Provider) disconnect(ctx context.Context) error {
	return errors.Join(p.runtime.Close(ctx), p.images.Close(ctx))
}

// NotifyNodeStatus does nothing: what a machine has does not change.
func (p *Provider) NotifyNodeStatus(context.Context, func(*corev1.Node)) {}

// describe says what the node is and has.
func (p *Provider) describe(ctx context.Context, n *corev1.Node, cfg Config, memory int64) error {
	version, err := p.runtime.Version(ctx, "v1")
	if err != nil {
		return fmt.Errorf("the container runtime at %s does not answer: %w", cfg.Endpoint, err)
	}
	n.Status.NodeInfo.ContainerRuntimeVersion = version.RuntimeName + "://" + version.RuntimeVersion
	n.Status.NodeInfo.OperatingSystem = runtime.GOOS
	n.Status.NodeInfo.Architecture = runtime.GOARCH
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
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	now := metav1.Now()
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime, n.Status.Conditions[i].LastTransitionTime = now, now
	}
	return nil
}

// machineMemory is the memory of this machine in bytes, 0 if it cannot be told.
func machineMemory() int64 {
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

// allowed lets pods have what is in the given directories of the host.
func allowed(directories []string) func(volume.HostAccess) error {
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
