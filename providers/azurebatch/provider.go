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
	"sync/atomic"
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
	budget *podgroup.Budget // of the calls that package podgroup makes, too

	hasJob    atomic.Bool // the last list has found it
	jobClosed atomic.Bool // a creation was refused for its state

	mu      sync.Mutex
	pool    pool
	details map[string]*detail // of tasks, by their ID
	nodes   map[string]string  // addresses of the pool's machines, by their ID
	noded   time.Time          // when they were listed
}

var (
	_ podgroup.Lister         = (*backend)(nil)
	_ podgroup.EmptyConfirmer = (*backend)(nil)
	_ podgroup.LogStreamer    = (*backend)(nil)
	_ podgroup.Reporter       = (*backend)(nil)
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
	b := &backend{cfg: cfg, http: &http.Client{Transport: transport}, details: map[string]*detail{}, budget: podgroup.NewBudget(nil)}
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
	actionFile podgroup.Action = "read files"
	actionPool podgroup.Action = "read the pool"
)

// createJob creates the job.
func (b *backend) createJob(ctx context.Context) error {
	_, err := b.client.CreateJob(ctx, azbatch.CreateJobContent{
		ID: &b.cfg.JobID, PoolInfo: &azbatch.PoolInfo{PoolID: &b.cfg.PoolID}, DisplayName: new("Virtual Kubelet: " + b.cfg.ClusterName),
	}, nil)
	if err = classify(actionJob, err); errdefs.IsConflict(err) { // it exists
		return nil
	}
	return err
}

func isJobGone(err error) bool {
	_, gone := errors.AsType[*jobGone](err)
	return gone
}

// checkJob returns an error if the job takes no tasks any more, once a creation was refused for that.
func (b *backend) checkJob(ctx context.Context) error {
	if !b.jobClosed.Load() {
		return nil
	}
	var job azbatch.GetJobResponse
	err := b.budget.Do(ctx, actionShow, func() (err error) {
		job, err = b.client.GetJob(ctx, b.cfg.JobID, &azbatch.GetJobOptions{SelectParam: []string{"id", "state"}})
		return classify(podgroup.ActionReport, err)
	})
	switch {
	case isJobGone(err): // a list creates it
	case err != nil:
		return err
	case same(job.State, azbatch.JobStateTerminating), same(job.State, azbatch.JobStateCompleted):
		return errdefs.AsUnavailable(fmt.Errorf("job %s takes no tasks, since it is %s: delete it, or set another jobID", b.cfg.JobID, deref(job.State)))
	}
	b.jobClosed.Store(false)
	return nil
}

// Create implements podgroup.Backend. The ID of the task is the pod's: a task that exists is
// the one of an earlier call, whose answer was lost.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	pool, err := b.poolOf(ctx)
	if err != nil {
		return podgroup.Unit{}, podgroup.NotCreated(err)
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
		if isJobGone(err) { // the next list creates it
			b.hasJob.Store(false)
		}
		if _, closed := errors.AsType[*jobClosed](err); closed {
			b.jobClosed.Store(true)
			err = errdefs.AsRetryAfter(err, time.Minute)
		}
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
		if err := b.terminate(ctx, u.ID); err != nil {
			log.G(ctx).WithField("task", u.ID).WithError(err).Debug("Cannot terminate a task that is deleted")
		}
	}
	_, err := b.client.DeleteTask(ctx, b.cfg.JobID, u.ID, nil)
	return classify(podgroup.ActionDelete, err)
}

// terminate ends a task, unless it has ended.
func (b *backend) terminate(ctx context.Context, id string) error {
	err := b.budget.Do(ctx, actionEnd, func() error {
		_, err := b.client.TerminateTask(ctx, b.cfg.JobID, id, nil)
		return classify(actionEnd, err)
	})
	if errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// listed is what lists show of a task: neither its environment nor its command line, which
// have the files of the pod.
var listed = []string{"id", "displayName", "state", "previousState", "stateTransitionTime", "creationTime", "executionInfo", "nodeInfo", "constraints"}

// pageSize is how many tasks are requested at once, the most that Batch allows.
const pageSize int32 = 1000

// List implements podgroup.Lister: all tasks of the job. A job that has never been there is
// created; one that was is missing in two lists before it is.
func (b *backend) List(ctx context.Context, filter map[string]string, page string) (found podgroup.Page, err error) {
	list, err := b.listTasks(ctx, page)
	if isJobGone(err) && !b.hasJob.Swap(false) {
		if err = b.createJob(ctx); err == nil {
			list, err = b.listTasks(ctx, page)
		}
	}
	if err != nil {
		return podgroup.Page{}, err
	}
	b.hasJob.Store(true)
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

// ConfirmEmpty implements podgroup.EmptyConfirmer: with another clusterName none of the job's tasks
// is the node's.
func (b *backend) ConfirmEmpty(ctx context.Context, unitID string, pod *corev1.Pod) error {
	if !idRule.MatchString(unitID) {
		return nil // Batch has no such IDs
	}
	t, err := b.show(ctx, unitID, listed)
	switch {
	case errdefs.IsNotFound(err), isJobGone(err):
		return nil
	case err != nil:
		return fmt.Errorf("the list has no task of this node, and whether task %s of pod %s/%s is gone cannot be found out: %w", unitID, pod.Namespace, pod.Name, err)
	case same(t.State, azbatch.TaskStateCompleted):
		return nil
	}
	if l := parseLabel(deref(t.DisplayName)); l == nil || l.Tags[podgroup.TagUID] != string(pod.UID) {
		return nil
	}
	return fmt.Errorf("the list has no task of this node, while task %s of pod %s/%s is %s: clusterName was changed; set it back, or terminate the task", unitID, pod.Namespace, pod.Name, deref(t.State))
}

func (b *backend) listTasks(ctx context.Context, page string) (azbatch.ListTasksResponse, error) {
	pager := b.client.NewListTasksPager(b.cfg.JobID, &azbatch.ListTasksOptions{SelectParam: listed, MaxResults: new(pageSize)})
	if page != "" {
		if err := b.goOn(ctx, pager, page); err != nil {
			return azbatch.ListTasksResponse{}, err
		}
	}
	list, err := pager.NextPage(ctx)
	return list, classify(podgroup.ActionList, err)
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
	var shown azbatch.GetTaskResponse
	err := b.budget.Do(ctx, actionShow, func() (err error) {
		shown, err = b.client.GetTask(ctx, b.cfg.JobID, id, &azbatch.GetTaskOptions{SelectParam: fields})
		return classify(actionShow, err)
	})
	return &shown.Task, err
}

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

func (b *backend) options() podgroup.Options {
	return podgroup.Options{
		Service: "Azure Batch", Scheme: scheme, Place: b.cfg.AccountEndpoint + "/jobs/" + b.cfg.JobID,
		Identity: podgroup.Identity{Cluster: b.cfg.ClusterName, MaxTag: 253},
		Features: podgroup.Features{Fields: fields, Check: check, Ignores: b.ignores, FilesBytes: maxFiles, TokenLifetime: tokenLifetime},
		Capacity: corev1.ResourceList{},
		Budget:   b.budget,
	}
}
