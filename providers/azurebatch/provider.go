package azurebatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"
	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// backend is a job of Azure Batch as a backend of package podgroup.
type backend struct {
	cfg    Config // complete
	client *azbatch.Client
	http   *http.Client
	pods   corev1listers.PodLister // nil in tests that have no secrets
	adder  adder

	mu      sync.Mutex
	hasJob  bool
	pool    pool
	details map[string]*detail // of tasks, by their ID
	nodes   map[string]string  // addresses of the pool's machines, by their ID
	noded   time.Time          // when they were listed
}

var (
	_ podgroup.Lister      = (*backend)(nil)
	_ podgroup.LogStreamer = (*backend)(nil)
	_ podgroup.Reporter    = (*backend)(nil)
)

// New returns the provider of a node, whose pods are tasks, and sets the node's spec and
// status. It makes no call. Close stops the provider, and leaves the tasks as they are. An
// error is of class InvalidInput.
func New(init nodeutil.ProviderConfig, cfg Config) (*podgroup.Provider, error) {
	return newProvider(init, cfg, nil)
}

func newProvider(init nodeutil.ProviderConfig, cfg Config, transport http.RoundTripper) (*podgroup.Provider, error) {
	b, err := newBackend(cfg, init.Node.Name, transport)
	if err != nil {
		return nil, err
	}
	b.pods = init.Pods
	made, _, err := podgroup.New(init, b, b.options())
	if provider, ok := made.(*podgroup.Provider); ok { // since b does not watch
		return provider, err
	}
	return nil, err
}

// newBackend returns a backend. transport, if it is not nil, connects to the servers.
func newBackend(cfg Config, node string, transport http.RoundTripper) (*backend, error) {
	if err := cfg.Complete(node); err != nil {
		return nil, err
	}
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	b := &backend{cfg: cfg, http: &http.Client{Transport: transport}, details: map[string]*detail{}}
	var err error
	if b.client, err = newClient(&cfg, b.http); err != nil {
		return nil, errdefs.InvalidInputf("azurebatch config: %w", err)
	}
	b.adder.send = b.sendTasks
	return b, nil
}

var _ policy.Transporter = (*http.Client)(nil)

// Close closes idle connections.
func (b *backend) Close() error {
	b.http.CloseIdleConnections()
	return nil
}

// scheme is what IDs of containers begin with.
const scheme = "azurebatch"

// Actions that package podgroup does not make itself.
const (
	actionJob  podgroup.Action = "create the job"
	actionShow podgroup.Action = "show"
	actionEnd  podgroup.Action = "terminate"
)

// ensureJob creates the job, unless it was there before.
func (b *backend) ensureJob(ctx context.Context) error {
	b.mu.Lock()
	has := b.hasJob
	b.mu.Unlock()
	if has {
		return nil
	}
	_, err := b.client.CreateJob(ctx, azbatch.CreateJobContent{
		ID: &b.cfg.JobID, PoolInfo: &azbatch.PoolInfo{PoolID: &b.cfg.PoolID}, DisplayName: new("Virtual Kubelet: " + b.cfg.ClusterName),
	}, nil)
	if err = classify(actionJob, err); err != nil && !errdefs.IsConflict(err) {
		return err
	}
	b.mu.Lock()
	b.hasJob = true
	b.mu.Unlock()
	return nil
}

// forgetJob has the job be created again, if err is that it is gone.
func (b *backend) forgetJob(err error) {
	if _, gone := errors.AsType[*jobGone](err); gone {
		b.mu.Lock()
		b.hasJob = false
		b.mu.Unlock()
	}
}

// Create implements podgroup.Backend. The ID of the task is the pod's: a task that exists is
// the one of an earlier call, whose answer was lost.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	if err := b.ensureJob(ctx); err != nil {
		return podgroup.Unit{}, err
	}
	pool, err := b.poolOf(ctx)
	if err != nil {
		return podgroup.Unit{}, err
	}
	task, label, err := b.task(r, pool)
	if err != nil {
		return podgroup.Unit{}, err
	}
	err = b.adder.add(ctx, task)
	if code, ok := errors.AsType[*taskExists](err); ok {
		shown, err := b.show(ctx, *task.ID, listed)
		if err != nil {
			return podgroup.Unit{}, err
		}
		if known := parseLabel(deref(shown.DisplayName)); known == nil || known.Tags[podgroup.TagUID] != r.Tags[podgroup.TagUID] {
			return podgroup.Unit{}, errdefs.AsConflict(fmt.Errorf("task %s is not this pod's: %w", *task.ID, code))
		}
		return b.unit(shown, nil), nil
	}
	if err != nil {
		b.forgetJob(err)
		return podgroup.Unit{}, err
	}
	return b.unit(&azbatch.Task{ID: task.ID, DisplayName: task.DisplayName, State: new(azbatch.TaskStateActive), CreationTime: new(time.Now()), Constraints: task.Constraints}, label.Tags), nil
}

// Delete implements podgroup.Backend. Batch stops what runs of the task, and removes its
// files; containers that its script has started are stopped by the one that watches it. A task
// that waits is terminated before: the deletion of a new one takes effect up to ten minutes
// later, and Batch tries to run it until then.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	if u.Phase == podgroup.Pending {
		_, err := b.client.TerminateTask(ctx, b.cfg.JobID, u.ID, nil)
		if err = classify(actionEnd, err); err != nil && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
			log.G(ctx).WithField("task", u.ID).WithError(err).Debug("Cannot terminate a task that is deleted")
		}
	}
	_, err := b.client.DeleteTask(ctx, b.cfg.JobID, u.ID, nil)
	return classify(podgroup.ActionDelete, err)
}

// listed is what lists show of a task: neither its environment nor its command line, which
// have the files of the pod.
var listed = []string{"id", "displayName", "state", "previousState", "stateTransitionTime", "creationTime", "executionInfo", "nodeInfo", "constraints"}

// pageSize is how many tasks are requested at once, the most that Batch allows.
const pageSize int32 = 1000

// List implements podgroup.Lister: all tasks of the job.
func (b *backend) List(ctx context.Context, filter map[string]string, page string) (found podgroup.Page, err error) {
	if err := b.ensureJob(ctx); err != nil {
		return podgroup.Page{}, err
	}
	pager := b.client.NewListTasksPager(b.cfg.JobID, &azbatch.ListTasksOptions{SelectParam: listed, MaxResults: new(pageSize)})
	if page != "" {
		if err := b.goOn(ctx, pager, page); err != nil {
			return podgroup.Page{}, err
		}
	}
	list, err := pager.NextPage(ctx)
	if err = classify(podgroup.ActionList, err); err != nil {
		b.forgetJob(err)
		return podgroup.Page{}, err
	}
	b.listNodes(ctx, list.Value)
	if err := b.refresh(ctx, list.Value, filter); err != nil {
		return podgroup.Page{}, err
	}
	for i := range list.Value {
		found.Units = append(found.Units, b.unit(&list.Value[i], filter))
	}
	found.Next = deref(list.NextLink)
	return found, nil
}

// goOn has a pager go on at a link, which has to be one of the account: the client sends its
// token there.
func (b *backend) goOn(ctx context.Context, pager *runtime.Pager[azbatch.ListTasksResponse], link string) error {
	u, err := url.Parse(link)
	ours, _ := url.Parse(b.cfg.AccountEndpoint) // Complete has seen to it
	host := func(u *url.URL) string { return strings.ToLower(strings.TrimSuffix(u.Host, ":443")) }
	if err != nil || u.Scheme != "https" || host(u) != host(ours) || u.User != nil {
		return errdefs.AsUnavailable(errors.New("a list of Azure Batch goes on at an address that is not the account's"))
	}
	text, err := json.Marshal(map[string]string{"odata.nextLink": link})
	if err != nil {
		return err
	}
	if err := pager.UnmarshalJSON(text); err != nil {
		return err
	}
	_, err = pager.NextPage(ctx) // is what was unmarshalled
	return err
}

// show returns a task.
func (b *backend) show(ctx context.Context, id string, fields []string) (*azbatch.Task, error) {
	shown, err := b.client.GetTask(ctx, b.cfg.JobID, id, &azbatch.GetTaskOptions{SelectParam: fields})
	return &shown.Task, classify(actionShow, err)
}

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

func (b *backend) options() podgroup.Options {
	return podgroup.Options{
		Service: "Azure Batch", Scheme: scheme,
		Identity: podgroup.Identity{Cluster: b.cfg.ClusterName, MaxTag: 253},
		Features: podgroup.Features{Fields: fields, Check: check, Ignores: b.ignores, FilesBytes: maxFiles, TokenLifetime: tokenLifetime},
		Capacity: corev1.ResourceList{},
	}
}
