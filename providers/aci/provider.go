package aci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// backend is Azure Container Instances as a backend of package podgroup.
type backend struct {
	cfg        Config // complete
	groups     *armcontainerinstance.ContainerGroupsClient
	containers *armcontainerinstance.ContainersClient
	locations  *armcontainerinstance.LocationClient
	dialer     *websocket.Dialer
	objects    node.ObjectSource       // has the keys of storage accounts
	pods       corev1listers.PodLister // nil in tests without probes
	budget     *podgroup.Budget        // of the calls that package podgroup makes, too

	reads *rate.Limiter // of groups, for their states

	mu     sync.Mutex
	views  map[string]*view // by name
	began  time.Time        // of the list
	quiet  time.Time        // no states are read before
	report report
}

var (
	_ podgroup.Lister         = (*backend)(nil)
	_ podgroup.EmptyConfirmer = (*backend)(nil)
	_ podgroup.LogReader      = (*backend)(nil)
	_ podgroup.Attacher       = (*backend)(nil)
	_ podgroup.Execer         = (*backend)(nil)
	_ podgroup.Reporter       = (*backend)(nil)
)

// New returns the provider of a node, whose pods are container groups, and sets the node's
// spec and status. It makes no call. Close stops the provider, and leaves the groups as they
// are. An error is of class InvalidInput.
func New(init nodeutil.ProviderConfig, cfg Config) (*podgroup.Provider, error) {
	return newProvider(init, cfg, connection{})
}

// connection replaces what connects to Azure, in tests.
type connection struct {
	transport  policy.Transporter
	credential azcore.TokenCredential
	dialer     *websocket.Dialer
}

func newProvider(init nodeutil.ProviderConfig, cfg Config, to connection) (*podgroup.Provider, error) {
	b, err := newBackend(cfg, to)
	if err != nil {
		return nil, err
	}
	b.objects, b.pods = init.Objects, init.Pods
	init.Node.Status.NodeInfo.OperatingSystem = b.os()
	p, _, err := podgroup.New(init, b, b.options())
	if err != nil {
		return nil, err
	}
	return p.(*podgroup.Provider), nil // since b does not watch
}

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

func newBackend(cfg Config, to connection) (*backend, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	// Package podgroup retries, and keeps to the quotas.
	options := azcore.ClientOptions{Cloud: cfg.cloud(), Transport: to.transport, Retry: policy.RetryOptions{MaxRetries: -1}}
	if to.credential == nil {
		credential, err := cfg.credential(options)
		if err != nil {
			return nil, errdefs.InvalidInputf("aci config: credentials: %w", err)
		}
		to.credential = credential
	}
	if to.dialer == nil {
		to.dialer = &websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: 30 * time.Second}
	}
	if cfg.StandbyPool != "" {
		options.PerCallPolicies = append(options.PerCallPolicies, standby{&cfg})
	}
	factory, err := armcontainerinstance.NewClientFactory(cfg.SubscriptionID, to.credential, &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true})
	if err != nil {
		return nil, errdefs.InvalidInputf("aci config: %w", err)
	}
	return &backend{
		cfg: cfg, dialer: to.dialer, views: map[string]*view{}, budget: podgroup.NewBudget(budget),
		groups: factory.NewContainerGroupsClient(), containers: factory.NewContainersClient(), locations: factory.NewLocationClient(),
		reads: rate.NewLimiter(rate.Limit(float64(cfg.ReadsPerMinute)/60), max(1, cfg.ReadsPerMinute/10)),
	}, nil
}

// place is where the groups are: Azure distinguishes no case.
func (b *backend) place() string {
	return strings.ToLower("subscription " + b.cfg.SubscriptionID + " resource group " + b.cfg.ResourceGroup)
}

// os is the operating system as Kubernetes names it.
func (b *backend) os() string {
	if b.cfg.OperatingSystem == "Windows" {
		return "windows"
	}
	return "linux"
}

// The calls a minute. Azure Resource Manager lets a principal make 1500 reads, 600 writes and
// 600 deletes a minute in a subscription and region. Creations are two reads and a write at
// most; the quotas of Container Instances for them (by default 100 in five minutes) can be
// raised, and are left to the service's refusals, after which there is silence.
var budget = map[podgroup.Action]int{
	podgroup.ActionCreate: 300, podgroup.ActionDelete: 500, podgroup.ActionExec: 120, podgroup.ActionList: 200, podgroup.ActionLog: 250,
	actionStop: 200,
}

func (b *backend) options() podgroup.Options {
	o := podgroup.Options{
		Service: "Azure Container Instances", Scheme: scheme, Place: b.place(),
		Identity: podgroup.Identity{Cluster: b.cfg.ClusterName, MaxTag: 256},
		Features: podgroup.Features{
			Fields: fields, Ignored: ignored, Check: b.check, Ignores: ignores, Containers: 60, Volumes: 20, FilesBytes: 2 << 20, TokenLifetime: 365 * 24 * time.Hour,
		},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: *b.cfg.CPU, corev1.ResourceMemory: *b.cfg.Memory, corev1.ResourcePods: *b.cfg.Pods},
		Budget:   b.budget,
		CacheFor: 5 * time.Second,
	}
	if !b.cfg.GPU.IsZero() {
		o.Capacity[gpuResource] = *b.cfg.GPU
	}
	if b.cfg.OperatingSystem == "Windows" { // groups have one container there, and no volumes
		ofVolumes := func(field string) bool { return strings.HasPrefix(strings.TrimPrefix(field, "-"), "volumes.") }
		o.Features.Fields, o.Features.Ignored = slices.DeleteFunc(slices.Clone(fields), ofVolumes), slices.DeleteFunc(slices.Clone(ignored), ofVolumes)
		o.Features.Containers = 1
	}
	if b.cfg.SubnetName != "" && b.cfg.OperatingSystem == "Linux" { // elsewhere groups cannot be given a DNS
		o.Features.Fields = slices.Concat(o.Features.Fields, []string{"dnsConfig"})
		if b.cfg.KubeDNSIP != "" {
			o.DNS = &podspec.DNS{ClusterServers: []string{b.cfg.KubeDNSIP}, ClusterDomain: b.cfg.ClusterDomain}
		}
	}
	return o
}

// Create implements podgroup.Backend. A PUT of a group that exists would start its containers
// again: it is looked for first.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	group, err := b.group(ctx, r)
	if err != nil {
		return podgroup.Unit{}, err
	}
	name := groupName(r)
	known, err := b.groups.Get(ctx, b.cfg.ResourceGroup, name, nil)
	if err == nil {
		if g := &known.ContainerGroup; b.tags(g)[podgroup.TagUID] == r.Tags[podgroup.TagUID] {
			return b.unit(g, &view{group: g, at: time.Now()}), nil
		}
		return podgroup.Unit{}, errdefs.AsConflict(fmt.Errorf("container group %s exists, and its tags are not those of the pod: delete it if nobody needs it", name))
	}
	if err = classify(actionView, err); !errdefs.IsNotFound(err) {
		return podgroup.Unit{}, err
	}
	created := time.Now()
	group.Tags[tagCreated] = new(created.UTC().Format(time.RFC3339Nano))
	if _, err := b.groups.BeginCreateOrUpdate(ctx, b.cfg.ResourceGroup, name, *group, nil); err != nil {
		refused, _ := errors.AsType[*azcore.ResponseError](err)
		err = classify(podgroup.ActionCreate, err)
		if reason := b.tooLarge(group); reason != "" && refused != nil && refused.StatusCode < http.StatusInternalServerError && refused.StatusCode != http.StatusTooManyRequests {
			err = fmt.Errorf("%w (%s)", err, reason)
		}
		return podgroup.Unit{}, err
	}
	b.mu.Lock()
	b.views[name] = &view{uid: r.Tags[podgroup.TagUID], at: created, seen: time.Now()}
	b.mu.Unlock()
	return podgroup.Unit{ID: name, Created: created}, nil // its states are in lists, as those of all
}

// groupName returns the name of the group of a pod: it ends in a hash, so that it stays unique
// without the hyphens in a row that names of pods may have, and groups may not.
func groupName(r *podgroup.Request) string { return hyphens.ReplaceAllString(r.Name, "-") }

var hyphens = regexp.MustCompile("-{2,}")

// Delete implements podgroup.Backend. Azure stops the containers, and takes no grace period.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	var response *http.Response
	_, err := b.groups.BeginDelete(policy.WithCaptureResponse(ctx, &response), b.cfg.ResourceGroup, u.ID, nil)
	if err == nil && response.StatusCode == http.StatusNoContent {
		return errdefs.NotFoundf("Azure has no container group %s", u.ID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := b.views[u.ID]; v != nil && err == nil {
		v.leaving = true
	}
	return classify(podgroup.ActionDelete, err)
}
