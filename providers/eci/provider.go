package eci

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

var (
	_ podgroup.Lister         = (*backend)(nil)
	_ podgroup.EmptyConfirmer = (*backend)(nil)
	_ podgroup.Updater        = (*backend)(nil)
	_ podgroup.LogReader      = (*backend)(nil)
	_ podgroup.Execer         = (*backend)(nil)
	_ podgroup.Meter          = (*backend)(nil)
)

// New returns the provider of a node, whose pods run in container groups, and sets the node's
// spec and status. It sends no request to the API. Close stops the provider; container groups
// stay as they are. It does not notify: the controller polls all pods, which takes one list.
func New(init nodeutil.ProviderConfig, cfg Config) (*podgroup.Provider, error) {
	b, err := newBackend(cfg)
	if err != nil {
		return nil, err
	}
	return b.provider(init)
}

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

// backend is the API as a backend of package podgroup.
type backend struct {
	cfg    Config // complete
	client *client
	groups groups
}

func newBackend(cfg Config) (*backend, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	client, err := newClient(&cfg)
	if err != nil {
		return nil, err
	}
	return &backend{cfg: cfg, client: client, groups: groups{known: map[string]known{}}}, nil
}

// provider returns the provider of a node.
func (b *backend) provider(init nodeutil.ProviderConfig) (*podgroup.Provider, error) {
	b.configureNode(init.Node)
	p, _, err := podgroup.New(init, b, b.options())
	if err != nil {
		return nil, err
	}
	return p.(*podgroup.Provider), nil // since b does not watch
}

// Close implements io.Closer.
func (b *backend) Close() error {
	b.client.closeIdle()
	return nil
}

// ephemeralStorage is the node's capacity. Each container group has some for free, so
// the number only has to be large.
const ephemeralStorage = "40Ti"

// resourceGPU is the resource name of GPUs.
const resourceGPU corev1.ResourceName = "nvidia.com/gpu"

func (b *backend) configureNode(n *corev1.Node) {
	n.Status.NodeInfo.OperatingSystem = cmp.Or(b.cfg.OperatingSystem, n.Status.NodeInfo.OperatingSystem)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelTopologyRegion] = b.cfg.Region
	if b.cfg.Zone != "" {
		n.Labels[corev1.LabelTopologyZone] = b.cfg.Zone
	}
}

// place is where the groups are. Nothing says whose account an access key is of; a security group
// is in one only, and what it is matters only while the list is empty.
func (b *backend) place() string {
	return "region " + b.cfg.Region + " security group " + b.cfg.SecurityGroup
}

// options are what the API can do.
func (b *backend) options() podgroup.Options {
	o := podgroup.Options{
		Service: "ECI", Scheme: "eci", Place: b.place(), Identity: podgroup.Identity{Cluster: b.cfg.ClusterName, MaxTag: maxTag},
		CacheFor: b.cfg.CacheFor.Duration, UsageBatch: maxIDs, Budget: b.cfg.Budget,
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: b.cfg.CPU, corev1.ResourceMemory: b.cfg.Memory, corev1.ResourcePods: b.cfg.Pods,
			corev1.ResourceEphemeralStorage: resource.MustParse(ephemeralStorage),
		},
		Features: podgroup.Features{
			Fields: fields, Ignored: ignored, Check: check, Ignores: ignores,
			Containers: maxContainers, Volumes: maxVolumes, FileBytes: maxFile,
		},
	}
	if !b.cfg.GPU.IsZero() {
		o.Capacity[resourceGPU] = b.cfg.GPU
	}
	if b.cfg.UpdateFiles {
		// With Never an update may fail the containers.
		o.Features.Renew = []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure}
	}
	if len(b.cfg.ClusterDNS) > 0 {
		o.DNS = &podspec.DNS{ClusterServers: b.cfg.ClusterDNS, ClusterDomain: b.cfg.ClusterDomain}
	}
	return o
}

// NewBudget returns the calls a minute that the API allows an account in a region. Nodes
// of one process that use the same account share one: see Config.Budget.
func NewBudget() *podgroup.Budget {
	return podgroup.NewBudget(map[podgroup.Action]int{
		podgroup.ActionCreate: 1000, podgroup.ActionDelete: 1000, podgroup.ActionList: 2000, podgroup.ActionUpdate: 500,
		podgroup.ActionLog: 500, podgroup.ActionExec: 500, podgroup.ActionUsage: 500,
	})
}
