// Package stackpath runs pods as workloads of StackPath Edge Compute, a service that ended in
// 2024. It is the smallest provider of a REST API, and stays as an example: see README.md.
package stackpath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Config has the settings of the provider that this one replaces.
type Config struct {
	AccountID    string `json:"account_id"` // which the API does not need
	StackID      string `json:"stack_id"`
	ClientID     string `json:"client_id"`
	ClientSecret Secret `json:"client_secret"`
	// BaseURL is the host of the API. Defaults to gateway.stackpath.com.
	BaseURL string `json:"base_url"`
	// CityCode is the place in which pods run, such as DFW.
	CityCode string `json:"city_code"`
	// ClusterName distinguishes clusters in one stack. Defaults to kubernetes.
	ClusterName string `json:"cluster_name"`
}

// Secret is a string that is never printed.
type Secret = config.Secret

// ParseConfig decodes a configuration file in YAML. The error, of class InvalidInput, names
// all mistakes.
func ParseConfig(data []byte) (c Config, err error) {
	return c, errdefs.AsInvalidInput(config.Decode(data, &c, nil))
}

// Merge overwrites settings with environment variables, as getenv returns them.
func (c *Config) Merge(getenv func(string) string) error {
	return config.Environment(getenv, map[string]any{
		"SP_STACK_ID": &c.StackID, "SP_CLIENT_ID": &c.ClientID, "SP_CLIENT_SECRET": (*string)(&c.ClientSecret), "SP_API_HOST": &c.BaseURL, "SP_CITY_CODE": &c.CityCode,
	})
}

// Complete sets defaults, and returns an error of class InvalidInput if a setting is missing.
func (c *Config) Complete() error {
	c.BaseURL, c.CityCode, c.ClusterName = cmp.Or(c.BaseURL, "gateway.stackpath.com"), strings.ToUpper(c.CityCode), cmp.Or(c.ClusterName, "kubernetes")
	if c.StackID == "" || c.ClientID == "" || c.ClientSecret == "" || c.CityCode == "" || strings.Contains(c.BaseURL, "/") {
		return errdefs.AsInvalidInput(errors.New("stackpath config: set stack_id, client_id, client_secret and city_code; base_url is a host"))
	}
	return nil
}

// backend is the API as a backend of package podgroup.
type backend struct {
	cfg Config
	api *rest.Client // of the stack's workloads
}

// New makes the provider of a node, whose pods are workloads, and sets the node's spec and
// status. It makes no request. What it returns is an io.Closer. An error is of class
// InvalidInput.
func New(init nodeutil.ProviderConfig, cfg Config) (nodeutil.Provider, node.NodeProvider, error) {
	b, err := newBackend(cfg, http.DefaultTransport)
	if err != nil {
		return nil, nil, err
	}
	return podgroup.New(init, b, b.options())
}

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

func newBackend(cfg Config, transport http.RoundTripper) (*backend, error) {
	err := cfg.Complete()
	return &backend{cfg: cfg, api: &rest.Client{
		Service: "StackPath", URL: "https://" + cfg.BaseURL + "/workload/v1/stacks/" + cfg.StackID + "/workloads", Transport: transport,
		Secrets: []string{cfg.ClientSecret.Reveal()}, Token: (&clientcredentials.Config{
			ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret.Reveal(), Scopes: []string{"workloads"},
			TokenURL: "https://" + cfg.BaseURL + "/identity/v1/oauth2/token", AuthStyle: oauth2.AuthStyleInParams,
		}).Token,
	}}, err
}

func (b *backend) options() podgroup.Options {
	const address = "-containers.env.valueFrom.fieldRef.fieldPath=status."
	return podgroup.Options{
		Service: "StackPath", Scheme: "stackpath", Place: b.cfg.BaseURL + "/stacks/" + b.cfg.StackID,
		Sizes: podgroup.Sizes{{CPU: "1", Memory: []string{"2Gi"}}, {CPU: "2", Memory: []string{"4Gi", "8Gi"}}, {CPU: "4", Memory: []string{"16Gi"}}, {CPU: "8", Memory: []string{"32Gi"}}, // SP-1 to SP-8
			{CPU: "16", Memory: []string{"64Gi"}}, {CPU: "32", Memory: []string{"128Gi"}}, {CPU: "48", Memory: []string{"256Gi"}}},
		Identity: podgroup.Identity{Cluster: b.cfg.ClusterName, MaxTag: 63},
		Features: podgroup.Features{Fields: []string{"restartPolicy=Always", address + "podIP", address + "podIPs", address + "hostIP", address + "hostIPs"}, Containers: 1},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10000"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("1000")},
		CacheFor: 15 * time.Second, // a list takes a call for each pod
	}
}

// object is an object that is sent.
type object map[string]any

// Create implements podgroup.Backend. The slug of a workload serves as its ID. It is unique: a
// creation is refused if an earlier one, whose answer was lost, has happened.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	c := &r.Pod.Spec.Containers[0]
	if len(c.Args) > 0 && len(c.Command) == 0 {
		return podgroup.Unit{}, podgroup.NotSupportedf("StackPath has no arguments without a command")
	}
	env, ports, logins := object{}, object{}, []object{}
	for _, v := range c.Env {
		env[v.Name] = object{"value": v.Value}
	}
	for i, p := range c.Ports {
		ports["port-"+strconv.Itoa(i)] = object{"port": p.ContainerPort, "protocol": p.Protocol}
	}
	for _, l := range r.Logins {
		logins = append(logins, object{"dockerRegistry": object{"server": l.Registry, "username": l.Username, "password": l.Password}})
	}
	size := object{"cpu": r.Size.CPU.String(), "memory": r.Size.Memory.String()}
	err := b.api.Do(ctx, rest.Call{Action: podgroup.ActionCreate, Method: http.MethodPost, Secrets: r.Secrets(), In: object{"workload": object{
		"name": r.Name, "slug": r.Name, "metadata": object{"labels": r.Tags},
		"spec": object{
			"containers":           object{c.Name: object{"image": c.Image, "command": slices.Concat(c.Command, c.Args), "env": env, "ports": ports, "resources": object{"requests": size, "limits": size}}},
			"imagePullCredentials": logins, "networkInterfaces": []object{{"network": "default", "enableOneToOneNat": true}},
		},
		"targets": object{"city-code": object{"spec": object{"deploymentScope": "cityCode", "deployments": object{
			"minReplicas": 1, "maxReplicas": 1, "selectors": []object{{"key": "cityCode", "operator": "in", "values": []string{b.cfg.CityCode}}},
		}}}},
	}}}, nil)
	if errdefs.IsConflict(err) {
		err = nil
	}
	return podgroup.Unit{ID: r.Name}, err
}

// Delete implements podgroup.Backend.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	return b.api.Do(ctx, rest.Call{Action: podgroup.ActionDelete, Method: http.MethodDelete, Path: "/" + u.ID}, nil)
}

// List implements podgroup.Lister. Instances, which have the state, are listed by workload.
func (b *backend) List(ctx context.Context, filter map[string]string, page string) (found podgroup.Page, err error) {
	var list struct {
		PageInfo struct {
			HasNextPage bool
			EndCursor   string
		}
		Results []struct {
			Slug     string
			Metadata struct {
				Labels    map[string]string
				CreatedAt time.Time
			}
		}
	}
	path := "?" + url.Values{"page_request.first": {"50"}, "page_request.after": {page}}.Encode()
	if err := b.api.Do(ctx, rest.Call{Action: podgroup.ActionList, Method: http.MethodGet, Path: path}, &list); err != nil {
		return found, err
	}
	for _, w := range list.Results {
		if w.Metadata.Labels[podgroup.TagNodeName] != filter[podgroup.TagNodeName] {
			continue
		}
		u := podgroup.Unit{ID: w.Slug, Tags: w.Metadata.Labels, Created: w.Metadata.CreatedAt, Unknown: true}
		var instances struct{ Results []instance }
		err := b.api.Do(ctx, rest.Call{Action: podgroup.ActionUsage, Method: http.MethodGet, Path: "/" + u.ID + "/instances"}, &instances)
		if _, later := errdefs.RetryAfter(err); later { // all calls are refused
			return found, err
		}
		if len(instances.Results) > 0 {
			slices.MaxFunc(instances.Results, byAge).addTo(&u)
		}
		found.Units = append(found.Units, u)
	}
	if found.Next = list.PageInfo.EndCursor; !list.PageInfo.HasNextPage {
		found.Next = ""
	} else if found.Next == "" {
		return found, errdefs.AsUnavailable(errors.New("the list of StackPath goes on, and does not say where"))
	}
	return found, nil
}

// ConfirmEmpty implements podgroup.EmptyConfirmer: any object in JSON looks like an empty list.
func (b *backend) ConfirmEmpty(ctx context.Context, unitID string, _ *corev1.Pod) error {
	err := b.api.Do(ctx, rest.Call{Action: podgroup.ActionUsage, Method: http.MethodGet, Path: "/" + unitID}, nil)
	if err == nil {
		err = fmt.Errorf("the list of StackPath is empty, while there is workload %s", unitID)
	} else if errdefs.IsNotFound(err) {
		err = nil
	}
	return err
}

// instance is what the API says of an instance of a workload. The states of containers have the
// form of Kubernetes'.
type instance struct {
	Phase, Reason, Message, IPAddress string
	CreatedAt, DeletedAt              time.Time
	ContainerStatuses                 []struct {
		corev1.ContainerStatus // of which it has the name, ready and restartCount
		corev1.ContainerState
	}
}

// byAge compares instances of one workload, the last of which counts: one that the service has
// replaced, and deletes, may still be in the list.
func byAge(a, b instance) int {
	return cmp.Or(b.DeletedAt.Compare(a.DeletedAt), a.CreatedAt.Compare(b.CreatedAt))
}

var phases = map[string]podgroup.Phase{
	"SCHEDULING": podgroup.Pending, "STARTING": podgroup.Pending, "RUNNING": podgroup.Running, "FAILED": podgroup.Failed, "COMPLETED": podgroup.Failed,
}

// addTo adds what the API says of an instance to its unit.
func (i instance) addTo(u *podgroup.Unit) {
	phase, known := phases[i.Phase]
	u.Phase, u.Unknown = phase, !known // such as INSTANCE_PHASE_UNSPECIFIED
	switch {
	case !i.DeletedAt.IsZero():
		u.Phase, u.Unknown = podgroup.Stopping, false
	case phase == podgroup.Failed:
		u.Failure = &podspec.Failure{Reason: i.Reason, Message: i.Message}
	}
	u.IPs = strings.Fields(i.IPAddress)
	for _, s := range i.ContainerStatuses {
		c := podgroup.Container{Name: s.Name, Ready: &s.Ready, Restarts: s.RestartCount, Now: podgroup.RunOf(&s.ContainerState)}
		if c.Now.State == podgroup.Terminated { // it is started again
			c.Now, c.Last = podgroup.Run{Reason: "CrashLoopBackOff"}, c.Now
		}
		u.Containers = append(u.Containers, c)
	}
}
