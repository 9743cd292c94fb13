package stackpath

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// backend is the API as a backend of package podgroup.
type backend struct {
	cfg    Config
	client *http.Client

	mu       sync.Mutex
	token    string
	tokenEnd time.Time
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
	return &backend{cfg: cfg, client: &http.Client{Transport: transport}}, err
}

// sizes are SP-1 to SP-8.
var sizes = podgroup.Sizes{
	{CPU: "1", Memory: []string{"2Gi"}}, {CPU: "2", Memory: []string{"4Gi", "8Gi"}}, {CPU: "4", Memory: []string{"16Gi"}}, {CPU: "8", Memory: []string{"32Gi"}},
	{CPU: "16", Memory: []string{"64Gi"}}, {CPU: "32", Memory: []string{"128Gi"}}, {CPU: "48", Memory: []string{"256Gi"}},
}

func (b *backend) options() podgroup.Options {
	const address = "-containers.env.valueFrom.fieldRef.fieldPath=status."
	return podgroup.Options{
		Service: "StackPath", Scheme: "stackpath", Place: b.cfg.BaseURL + "/stacks/" + b.cfg.StackID, Sizes: sizes,
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
		return podgroup.Unit{}, errdefs.AsPermanent(errors.New("StackPath has no arguments without a command"))
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
	err := b.do(ctx, podgroup.ActionCreate, http.MethodPost, "", object{"workload": object{
		"name": r.Name, "slug": r.Name, "metadata": object{"labels": r.Tags},
		"spec": object{
			"containers": object{c.Name: object{
				"image": c.Image, "command": slices.Concat(c.Command, c.Args), "env": env, "ports": ports, "resources": object{"requests": size, "limits": size},
			}},
			"imagePullCredentials": logins, "networkInterfaces": []object{{"network": "default", "enableOneToOneNat": true}},
		},
		"targets": object{"city-code": object{"spec": object{"deploymentScope": "cityCode", "deployments": object{
			"minReplicas": 1, "maxReplicas": 1, "selectors": []object{{"key": "cityCode", "operator": "in", "values": []string{b.cfg.CityCode}}},
		}}}},
	}}, nil)
	if errdefs.IsConflict(err) {
		err = nil
	}
	return podgroup.Unit{ID: r.Name}, err
}

// Delete implements podgroup.Backend.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	return b.do(ctx, podgroup.ActionDelete, http.MethodDelete, "/"+u.ID, nil, nil)
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
	query := url.Values{"page_request.first": {"50"}, "page_request.after": {page}}
	if err := b.do(ctx, podgroup.ActionList, http.MethodGet, "?"+query.Encode(), nil, &list); err != nil {
		return found, err
	}
	for _, w := range list.Results {
		if w.Metadata.Labels[podgroup.TagNodeName] != filter[podgroup.TagNodeName] {
			continue
		}
		u := podgroup.Unit{ID: w.Slug, Tags: w.Metadata.Labels, Created: w.Metadata.CreatedAt, Unknown: true}
		var instances struct{ Results []instance }
		err := b.do(ctx, podgroup.ActionUsage, http.MethodGet, "/"+u.ID+"/instances", nil, &instances)
		if _, later := errdefs.RetryAfter(err); later { // all calls are refused
			return found, err
		}
		if len(instances.Results) > 0 {
			slices.MaxFunc(instances.Results, byAge).addTo(&u)
		}
		found.Units = append(found.Units, u)
	}
	if list.PageInfo.HasNextPage {
		found.Next = list.PageInfo.EndCursor
	}
	return found, nil
}

// instance is what the API says of an instance of a workload. The states of containers have the
// form of Kubernetes'.
type instance struct {
	Phase, Reason, Message, IPAddress string
	CreatedAt, DeletedAt              time.Time
	ContainerStatuses                 []struct {
		Name         string
		Ready        bool
		RestartCount int32
		corev1.ContainerState
	}
}

// byAge compares instances of one workload, the last of which counts: one that the service has
// replaced may still be in the list.
func byAge(a, b instance) int {
	if a.DeletedAt.IsZero() != b.DeletedAt.IsZero() {
		return b.DeletedAt.Compare(a.DeletedAt)
	}
	return a.CreatedAt.Compare(b.CreatedAt)
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
	if i.IPAddress != "" {
		u.IPs = []string{i.IPAddress}
	}
	for _, s := range i.ContainerStatuses {
		c := podgroup.Container{Name: s.Name, Ready: &s.Ready, Restarts: s.RestartCount}
		switch {
		case s.Running != nil:
			c.Now = podgroup.Run{State: podgroup.Executing, Started: s.Running.StartedAt.Time}
		case s.Terminated != nil: // it is started again
			c.Now = podgroup.Run{Reason: "CrashLoopBackOff"}
			c.Last = podgroup.Run{State: podgroup.Terminated, ExitCode: s.Terminated.ExitCode, Reason: s.Terminated.Reason, Finished: s.Terminated.FinishedAt.Time}
		case s.Waiting != nil:
			c.Now = podgroup.Run{Reason: s.Waiting.Reason, Message: s.Waiting.Message}
		}
		u.Containers = append(u.Containers, c)
	}
}

// do makes a request below the stack's workloads, with in as JSON, unless that is nil, and
// decodes the answer into out, unless that is nil.
func (b *backend) do(ctx context.Context, action podgroup.Action, method, path string, in, out any) error {
	token, err := b.accessToken(ctx, action)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	header := http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	return b.send(ctx, action, method, "/workload/v1/stacks/"+b.cfg.StackID+"/workloads"+path, header, &body, out)
}

var codes = podgroup.Codes{Denied: []string{"401", "403"}, Missing: []string{"404"}, Busy: []string{"409"}, Refused: []string{"400"}}

// send makes a request, decodes the answer, and gives an error its class.
func (b *backend) send(ctx context.Context, action podgroup.Action, method, path string, header http.Header, body io.Reader, out any) error {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+b.cfg.BaseURL+path, body)
	if err != nil {
		return err
	}
	request.Header = header
	response, err := b.client.Do(request)
	if err != nil {
		return codes.Classify(action, "", 0, 0, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if response.StatusCode == http.StatusUnauthorized { // the token has ended before its time
		b.mu.Lock()
		b.tokenEnd = time.Time{}
		b.mu.Unlock()
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		code := strconv.Itoa(response.StatusCode)
		if !json.Valid(text) {
			code = "" // something before the API has answered
		}
		err = fmt.Errorf("StackPath refuses to %s: %s: %.300s", action, response.Status, text)
		return codes.Classify(action, code, response.StatusCode, podgroup.RetryAfter(response.Header), err)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return codes.Classify(action, "", 0, 0, err)
}

// accessToken returns a token of OAuth, which is requested a minute before the last one ends.
func (b *backend) accessToken(ctx context.Context, action podgroup.Action) (string, error) {
	b.mu.Lock()
	token, end := b.token, b.tokenEnd
	b.mu.Unlock()
	if time.Now().Before(end) {
		return token, nil
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {b.cfg.ClientID}, "client_secret": {b.cfg.ClientSecret.Reveal()}, "scope": {"workloads"}}
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	err := b.send(ctx, action, http.MethodPost, "/identity/v1/oauth2/token", header, strings.NewReader(form.Encode()), &answer)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.token, b.tokenEnd = answer.AccessToken, time.Now().Add(time.Duration(answer.ExpiresIn-60)*time.Second)
	}
	return answer.AccessToken, err
}
