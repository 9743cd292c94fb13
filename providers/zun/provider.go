package zun

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/container/v1/capsules"
	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// backend is Zun as a backend of package podgroup.
type backend struct {
	cfg       Config // complete
	auth      gophercloud.AuthOptions
	endpoints gophercloud.EndpointOpts
	transport http.RoundTripper
	pods      corev1listers.PodLister // nil in tests that need no pods of capsules
	mayBegin  func() bool             // reports whether this process is the node's; nil if it always is

	authenticating chan struct{} // held by who sets client
	client         *gophercloud.ServiceClient

	ends     endsCache
	refusals refusals
	budget   *podgroup.Budget // of the calls that package podgroup makes, too
}

var (
	_ podgroup.Lister         = (*backend)(nil)
	_ podgroup.EmptyConfirmer = (*backend)(nil)
	_ podgroup.LogReader      = (*backend)(nil)
	_ podgroup.Execer         = (*backend)(nil)
	_ podgroup.Meter          = (*backend)(nil)
)

// New returns the provider of a node, whose pods are capsules, and sets the node's spec and
// status. It makes no call. Close stops the provider, and leaves the capsules as they are. An
// error is of class InvalidInput.
func New(init nodeutil.ProviderConfig, cfg Config) (*podgroup.Provider, error) {
	return newProvider(init, cfg, nil)
}

func newProvider(init nodeutil.ProviderConfig, cfg Config, transport http.RoundTripper) (*podgroup.Provider, error) {
	b, err := newBackend(cfg, transport)
	if err != nil {
		return nil, err
	}
	b.pods, b.mayBegin = init.Pods, init.MayBegin
	p, _, err := podgroup.New(init, b, b.options())
	if err != nil {
		return nil, err
	}
	return p.(*podgroup.Provider), nil // since b does not watch
}

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

// newBackend returns a backend. transport, if it is not nil, connects to the servers.
func newBackend(cfg Config, transport http.RoundTripper) (*backend, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	auth, endpoints, certificates, err := cfg.credentials()
	if err != nil {
		return nil, errdefs.InvalidInputf("zun config: %w", err)
	}
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = certificates
		transport = t
	}
	return &backend{cfg: cfg, auth: auth, endpoints: endpoints, transport: transport, authenticating: make(chan struct{}, 1), ends: endsCache{now: map[string]end{}}, budget: podgroup.NewBudget(nil)}, nil
}

// Close closes idle connections.
func (b *backend) Close() error {
	(&http.Client{Transport: b.transport}).CloseIdleConnections()
	return nil
}

func (b *backend) options() podgroup.Options {
	return podgroup.Options{
		Service: "Zun", Scheme: "zun", Place: b.place(), UsageBatch: 1, Budget: b.budget,
		Identity: podgroup.Identity{Cluster: b.cfg.ClusterName, MaxTag: 253},
		Features: podgroup.Features{Fields: fields, Check: check},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: *b.cfg.CPU, corev1.ResourceMemory: *b.cfg.Memory, corev1.ResourcePods: *b.cfg.Pods},
	}
}

// place is where the capsules are, as far as the configuration says it: application credentials do
// not say their project.
func (b *backend) place() string {
	host := b.auth.IdentityEndpoint
	if u, err := url.Parse(host); err == nil && u.Host != "" { // a clouds.yaml may have a user in it
		host = u.Host
	}
	return host + " region " + b.endpoints.Region + " project " + cmp.Or(b.auth.TenantID, b.auth.TenantName)
}

// fields are the fields of a pod's spec that capsules have.
var fields = []string{
	"restartPolicy", "initContainers", "volumes.emptyDir", "-volumes.emptyDir.medium", "volumes.persistentVolumeClaim", "-volumes.persistentVolumeClaim.readOnly", "volumes.ephemeral",
	"-containers.volumeMounts.subPath", "-containers.ports.protocol=SCTP",
	"-containers.env.valueFrom.fieldRef.fieldPath=status.podIP", "-containers.env.valueFrom.fieldRef.fieldPath=status.podIPs",
	"-containers.env.valueFrom.fieldRef.fieldPath=status.hostIP", "-containers.env.valueFrom.fieldRef.fieldPath=status.hostIPs",
}

// Create implements podgroup.Backend. Zun gives two capsules the same name, so that the one
// of an earlier call, whose answer was lost, is looked for first.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	t, err := b.template(r)
	if err != nil {
		return podgroup.Unit{}, err
	}
	var known capsule
	err = b.get(ctx, actionShow, "capsules/"+r.Name, &known)
	if err == nil && known.Labels[podgroup.TagUID] == r.Tags[podgroup.TagUID] {
		return b.unit(ctx, &known), nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return podgroup.Unit{}, podgroup.NotCreated(err)
	}
	text, err := json.Marshal(t)
	if err != nil {
		return podgroup.Unit{}, err
	}
	var created capsule
	err = b.call(ctx, podgroup.ActionCreate, func(client *gophercloud.ServiceClient) error {
		return capsules.Create(ctx, client, capsules.CreateOpts{TemplateOpts: &capsules.Template{Bin: text}}).ExtractInto(&created)
	})
	if err != nil {
		return podgroup.Unit{}, err
	}
	if created.Status == statusError {
		return b.withoutHost(ctx, &created)
	}
	return b.unit(ctx, &created), nil
}

// withoutHost deletes a capsule for which Zun had no host: it looks for one before it answers. The
// error is that the pod is to be created later. A capsule that is not gone soon is returned: its
// pod has failed.
func (b *backend) withoutHost(ctx context.Context, c *capsule) (podgroup.Unit, error) {
	u := b.unit(ctx, c)
	err := b.Delete(ctx, &u, 0)
	for range 10 {
		if errdefs.IsNotFound(err) {
			return podgroup.Unit{}, errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("no host of Zun takes the capsule, which is created again later: %s", c.StatusReason)), time.Minute)
		}
		select {
		case <-ctx.Done():
			return u, nil
		case <-time.After(2 * time.Second):
		}
		err = b.get(ctx, actionShow, "capsules/"+c.UUID, &capsule{})
	}
	return u, nil
}

// Delete implements podgroup.Backend. Zun stops the containers, within ten seconds.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	return b.call(ctx, podgroup.ActionDelete, func(client *gophercloud.ServiceClient) error {
		return capsules.Delete(ctx, client, u.ID).ExtractErr()
	})
}

// pageSize is how many capsules are requested at once. Zun's own limit is 1000 by default.
const pageSize = 500

// showTimeout is how long a page waits for containers that are asked for: where a host is down,
// Zun waits for a minute.
const showTimeout = 10 * time.Second

// List implements podgroup.Lister. Zun returns all capsules of the project, since it does not
// filter.
func (b *backend) List(ctx context.Context, filter map[string]string, page string) (found podgroup.Page, err error) {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}, "sort_key": {"id"}, "sort_dir": {"asc"}}
	if page != "" {
		query.Set("marker", page)
	}
	var list struct {
		Capsules []capsule `json:"capsules"`
		Next     string    `json:"next"` // with the address that Zun thinks it has
	}
	action := podgroup.ActionList
	if page != "" {
		action = actionShow // the marker may have been deleted since
	}
	if err := b.get(ctx, action, "capsules?"+query.Encode(), &list); errdefs.IsNotFound(err) {
		return podgroup.Page{}, errdefs.AsUnavailable(fmt.Errorf("the capsule at which the list goes on is gone: %w", err))
	} else if err != nil {
		return podgroup.Page{}, err
	}
	if list.Capsules == nil {
		return podgroup.Page{}, errdefs.AsUnavailable(errors.New("what answers in Zun's place returns no list of capsules, not even an empty one"))
	}
	if page == "" {
		b.ends.begin()
	}
	showing, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	var shown []*capsule
	for i := range list.Capsules { // containers of other nodes' capsules are not asked for
		c := &list.Capsules[i]
		if tags := b.tags(c.Labels); c.Status != statusDeleted && tags[podgroup.TagNodeName] == filter[podgroup.TagNodeName] && tags[podgroup.TagClusterName] == filter[podgroup.TagClusterName] {
			shown, found.Units = append(shown, c), append(found.Units, b.unit(showing, c))
		}
	}
	b.endFailed(ctx, shown, found.Units)
	if n := len(list.Capsules); n > 0 && list.Next != "" {
		found.Next = list.Capsules[n-1].UUID
	}
	return found, nil
}

// ConfirmEmpty implements podgroup.EmptyConfirmer: with another clusterName no capsule of the
// project is the node's.
func (b *backend) ConfirmEmpty(ctx context.Context, unitID string, pod *corev1.Pod) error {
	var found capsule
	switch err := b.get(ctx, actionShow, "capsules/"+url.PathEscape(unitID), &found); {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("the list has no capsule of this node, and whether capsule %s of pod %s/%s is gone cannot be found out: %w", unitID, pod.Namespace, pod.Name, err)
	case found.Labels[podgroup.TagUID] != string(pod.UID), found.Status == statusDeleting, found.Status == statusDeleted:
		return nil
	}
	return fmt.Errorf("the list has no capsule of this node, while capsule %s of pod %s/%s is %s: clusterName was changed; set it back, or delete the capsule", unitID, pod.Namespace, pod.Name, found.Status)
}
