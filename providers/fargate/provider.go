package fargate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/clusteruid"
	"github.com/virtual-kubelet/virtual-kubelet/internal/turns"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// backend is ECS as a backend of package podgroup.
type backend struct {
	cfg      Config // complete
	api      *ecs.Client
	log      *cloudwatchlogs.Client
	secrets  *secretsmanager.Client
	node     string
	dialer   *websocket.Dialer       // of sessions
	pods     corev1listers.PodLister // as the API has them; nil in tests that need none
	home     *clusteruid.Reader      // as above
	mayBegin func() bool             // reports whether this process is the node's; nil if it always is

	families turns.Turns // who registers and deletes definitions, by family

	mu       sync.Mutex
	deleted  map[string]time.Time  // stopped tasks that ECS shows on, by ARN, and when they were deleted
	refused  map[string]refusal    // requests that have started no task, by their token
	stopped  map[string]types.Task // as ECS has described them, by ARN
	hashKey  []byte                // once it is known
	uses     usage
	attempts attempts
}

// refusal is a request that has started no task, when that was, and what the token of the next
// one ends in: ECS repeats its answer to a token.
type refusal struct {
	at     time.Time
	ending string
}

// tokenLife is for how long ECS remembers a token.
const tokenLife = 24 * time.Hour

var (
	_ podgroup.Lister    = (*backend)(nil)
	_ podgroup.LogReader = (*backend)(nil)
	_ podgroup.Execer    = (*backend)(nil)
)

// New returns the provider of a node, and sets the node's spec and status. It makes no call.
// credentials, a region and HTTP clients are those of aws. Close stops the provider, and leaves
// the tasks as they are. An error is of class InvalidInput.
func New(init nodeutil.ProviderConfig, cfg Config, credentials aws.Config) (*podgroup.Provider, error) {
	b, err := newBackend(cfg, credentials)
	if err != nil {
		return nil, err
	}
	return newProvider(init, b)
}

func newProvider(init nodeutil.ProviderConfig, b *backend) (*podgroup.Provider, error) {
	b.pods, b.node, b.mayBegin = init.Pods, init.Node.Name, init.MayBegin
	b.home = clusteruid.New(init.Client.CoreV1())
	if b.cfg.CPUArchitecture == archARM {
		init.Node.Status.NodeInfo.Architecture = "arm64"
	}
	p, _, err := podgroup.New(init, b, b.options())
	if err != nil {
		return nil, err
	}
	return p.(*podgroup.Provider), nil // since b does not watch
}

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

func newBackend(cfg Config, credentials aws.Config) (*backend, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	if cfg.Region != "" {
		credentials.Region = cfg.Region
	}
	if cfg.Region = credentials.Region; cfg.Region == "" {
		return nil, errdefs.InvalidInput("fargate config: region: it is missing, also from the environment and the profile")
	}
	if credentials.HTTPClient == nil {
		credentials.HTTPClient = awshttp.NewBuildableClient()
	}
	credentials.HTTPClient = plainBodies{credentials.HTTPClient}
	credentials.Retryer = func() aws.Retryer { return aws.NopRetryer{} } // podgroup has its own
	return &backend{
		cfg: cfg, dialer: &websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: 45 * time.Second}, api: ecs.NewFromConfig(credentials), log: cloudwatchlogs.NewFromConfig(credentials), secrets: secretsmanager.NewFromConfig(credentials),
		deleted: map[string]time.Time{}, refused: map[string]refusal{}, stopped: map[string]types.Task{}, uses: newUsage(),
		attempts: attempts{waiting: map[string]*attempt{}},
	}, nil
}

// plainBodies hides that bodies of requests can write themselves. Those of the SDK report the end
// of the file as an error once they are closed, which it does when an answer begins: net/http,
// which may then still look for the end of the body, would break the answer off.
type plainBodies struct{ ecs.HTTPClient }

// Do implements ecs.HTTPClient.
func (c plainBodies) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.HTTPClient.Do(r)
}

// An account may run 20 tasks a second, and make 40 calls a second that change something. Other
// nodes and programs have their part of it.
const (
	runsPerMinute  = 400
	stopsPerMinute = 600
)

// Account is what the nodes of one process share that use the same account of AWS in the same
// region: the rate of its calls. It is safe for concurrent use.
type Account struct {
	budget *podgroup.Budget
	modify *rate.Limiter // registrations and deregistrations
}

// NewAccount returns an Account: see Config.Account.
func NewAccount() *Account {
	return &Account{
		podgroup.NewBudget(map[podgroup.Action]int{podgroup.ActionCreate: runsPerMinute, podgroup.ActionDelete: stopsPerMinute}),
		rate.NewLimiter(modifyPerSecond, modifyBurst),
	}
}

// listsAreFresh is how old a list may be: one of 1000 pods takes 20 calls and more.
const listsAreFresh = 5 * time.Second

func (b *backend) options() podgroup.Options {
	return podgroup.Options{
		Service: "Fargate", Scheme: "fargate", Sizes: sizes(), Features: b.features(), CacheFor: listsAreFresh,
		Identity: podgroup.Identity{Cluster: b.cfg.ClusterName, MaxTag: 256},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: *b.cfg.CPU, corev1.ResourceMemory: *b.cfg.Memory, corev1.ResourceEphemeralStorage: *b.cfg.Storage, corev1.ResourcePods: *b.cfg.Pods,
		},
		Budget: b.cfg.Account.budget,
	}
}

// Create implements podgroup.Backend. A repeated RunTask with the same token is the same task.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	p, err := b.plan(ctx, r)
	if err != nil {
		return podgroup.Unit{}, err
	}
	family := *p.definition.Family
	defer b.begin(r, family)()
	task, err := b.run(ctx, r, p)
	if errdefs.IsNotFound(err) { // the definition was deleted with the last pod that had it
		b.forget(family)
		if p, err = b.plan(ctx, r); err == nil { // with references to secrets that are to be made again
			task, err = b.run(ctx, r, p)
		}
	}
	if err != nil {
		if errdefs.IsNotFound(err) {
			err = errdefs.AsUnavailable(err)
		}
		return podgroup.Unit{}, err
	}
	b.mu.Lock()
	b.uses.see(family, aws.ToString(task.TaskArn))
	b.mu.Unlock()
	u := b.unit(task)
	if u.Over() { // an answer that is repeated does not say how: the next list does
		u.Phase, u.Failure, u.Ended = podgroup.Pending, nil, time.Time{}
	}
	return u, nil
}

// token returns the token of a request.
func (b *backend) token(r *podgroup.Request) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.Token + b.refused[r.Token].ending
}

// refuse notes that a request has started no task, for sure.
func (b *backend) refuse(r *podgroup.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.refused, func(_ string, known refusal) bool { return time.Since(known.at) > tokenLife })
	b.refused[r.Token] = refusal{time.Now(), "-" + rand.Text()[:8]}
}

// run runs the task of a plan. An error of class NotFound says that its definition is not there.
func (b *backend) run(ctx context.Context, r *podgroup.Request, p *plan) (*types.Task, error) {
	if err := b.ensureDefinition(ctx, p); err != nil {
		return nil, err
	}
	return b.start(ctx, r, p)
}

// start runs the task of a plan whose definition is registered.
func (b *backend) start(ctx context.Context, r *podgroup.Request, p *plan) (*types.Task, error) {
	public := types.AssignPublicIpDisabled
	if b.cfg.AssignPublicIPv4Address {
		public = types.AssignPublicIpEnabled
	}
	all := maps.Clone(r.Tags)
	maps.Copy(all, b.cfg.Tags)
	maps.Copy(all, r.Tags) // identity goes before
	in := &ecs.RunTaskInput{
		Cluster: &b.cfg.ClusterName, TaskDefinition: p.definition.Family, ClientToken: new(b.token(r)), Count: new(int32(1)), LaunchType: types.LaunchTypeFargate,
		PlatformVersion: &b.cfg.PlatformVersion, StartedBy: new(string(r.Pod.UID)), Tags: tags(all), EnableExecuteCommand: p.role != "",
		NetworkConfiguration: &types.NetworkConfiguration{AwsvpcConfiguration: &types.AwsVpcConfiguration{
			Subnets: b.cfg.Subnets, SecurityGroups: b.cfg.SecurityGroups, AssignPublicIp: public,
		}},
	}
	if o := p.overrides; len(o.ContainerOverrides) > 0 || o.ExecutionRoleArn != nil || o.TaskRoleArn != nil {
		in.Overrides = &o
	}
	if strategy := b.strategy(r.Pod); len(strategy) > 0 {
		in.LaunchType, in.CapacityProviderStrategy = "", strategy
	}
	out, err := b.api.RunTask(ctx, in)
	if err != nil {
		if err := classify(podgroup.ActionLog, err); errdefs.IsNotFound(err) && !errors.As(err, new(*types.ClusterNotFoundException)) {
			return nil, err
		}
		if conflict, ok := errors.AsType[*types.ConflictException](err); ok && len(conflict.ResourceIds) == 0 {
			// An earlier process has used the token, with another configuration, and got no task. Should
			// its request still be under way, the next list has its task before this one is made again.
			b.refuse(r)
			return nil, codes.Classify(podgroup.ActionCreate, codeLater, 0, 0, fmt.Errorf("ECS has started no task when it was asked with another configuration, and is asked again later: %s", conflict.ErrorMessage()))
		}
		return nil, classify(podgroup.ActionCreate, err)
	}
	if len(out.Tasks) == 0 {
		b.refuse(r)
		reason := "it gives no reason"
		if len(out.Failures) > 0 {
			reason = strings.TrimSpace(aws.ToString(out.Failures[0].Reason) + " " + aws.ToString(out.Failures[0].Detail))
		}
		return nil, codes.Classify(podgroup.ActionCreate, codeLater, 0, 0, errors.New("ECS has started no task: "+reason))
	}
	return &out.Tasks[0], nil
}

// strategy returns where the task of a pod is placed; empty is on FARGATE.
func (b *backend) strategy(pod *corev1.Pod) (list []types.CapacityProviderStrategyItem) {
	if name := pod.Annotations[annotationCapacity]; name != "" {
		return []types.CapacityProviderStrategyItem{{CapacityProvider: &name, Weight: 1}}
	}
	for i := range b.cfg.CapacityProviders {
		p := &b.cfg.CapacityProviders[i]
		list = append(list, types.CapacityProviderStrategyItem{CapacityProvider: &p.Name, Weight: p.Weight, Base: p.Base})
	}
	return list
}

// The reasons of tasks that this provider has stopped: those of pods that were deleted, which
// ECS shows on for about an hour, and those whose liveness probe or init container has failed.
const (
	stopReason = "its pod was deleted (virtual-kubelet)"
	sickReason = "its liveness probe has failed (virtual-kubelet)"
	initReason = "its init container has failed (virtual-kubelet)"
)

// Delete implements podgroup.Backend. ECS stops the containers within their stop timeout.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	err := b.stop(ctx, u.ID, stopReason)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	b.mu.Lock()
	for id, at := range b.deleted {
		if time.Since(at) > shownFor {
			delete(b.deleted, id)
		}
	}
	b.deleted[u.ID] = time.Now()
	maps.DeleteFunc(b.attempts.waiting, func(_ string, a *attempt) bool {
		return *a.failed.TaskArn == u.ID || a.next != nil && *a.next.TaskArn == u.ID
	})
	b.mu.Unlock()
	if data, ok := u.Data.(taskData); ok && data.definition != "" {
		b.release(ctx, u.ID, data.definition)
	}
	return err
}

func (b *backend) stop(ctx context.Context, task, reason string) error {
	_, err := b.api.StopTask(ctx, &ecs.StopTaskInput{Cluster: &b.cfg.ClusterName, Task: &task, Reason: &reason})
	return classify(podgroup.ActionDelete, err)
}

// shownFor is how long ECS shows a stopped task at most.
const shownFor = 2 * time.Hour

// List implements podgroup.Lister: the tasks that run, and then those that have stopped, 100
// a page.
func (b *backend) List(ctx context.Context, _ map[string]string, page string) (found podgroup.Page, err error) {
	status, token, _ := strings.Cut(page, ":")
	in := &ecs.ListTasksInput{Cluster: &b.cfg.ClusterName, DesiredStatus: types.DesiredStatusRunning, LaunchType: types.LaunchTypeFargate}
	if status == string(types.DesiredStatusStopped) {
		in.DesiredStatus = types.DesiredStatusStopped
	}
	if token != "" {
		in.NextToken = &token
	}
	list, err := b.listTasks(ctx, in)
	if err != nil {
		return found, err
	}
	tasks, unknown := b.ended(list.TaskArns)
	if len(unknown) > 0 {
		described, err := b.describe(ctx, unknown)
		if err != nil {
			return found, err
		}
		tasks = append(tasks, described...)
		b.end(described)
	}
	switch {
	case aws.ToString(list.NextToken) != "":
		found.Next = string(in.DesiredStatus) + ":" + *list.NextToken
	case in.DesiredStatus == types.DesiredStatusRunning:
		found.Next = string(types.DesiredStatusStopped) + ":"
	}
	if page == "" {
		b.mu.Lock()
		b.attempts.newest, b.attempts.failed = map[string]*types.Task{}, map[string][]*types.Task{}
		b.mu.Unlock()
	}
	for i := range tasks {
		b.seeAttempt(&tasks[i])
		if !b.isUnstarted(&tasks[i]) && !b.isDeleted(&tasks[i]) {
			u := b.unit(&tasks[i])
			b.probe(ctx, &u, &tasks[i])
			found.Units = append(found.Units, u)
		}
	}
	if found.Next == "" {
		found.Units = append(found.Units, b.settle(ctx)...)
	}
	b.listed(ctx, page == "", found.Next == "", tasks)
	return found, nil
}

// listTasks lists tasks of the cluster, which it creates if there is none, as the older
// provider has done.
func (b *backend) listTasks(ctx context.Context, in *ecs.ListTasksInput) (*ecs.ListTasksOutput, error) {
	list, err := b.api.ListTasks(ctx, in)
	if errors.As(err, new(*types.ClusterNotFoundException)) && !strings.HasPrefix(b.cfg.ClusterName, "arn:") {
		if _, err := b.api.CreateCluster(ctx, &ecs.CreateClusterInput{ClusterName: &b.cfg.ClusterName, CapacityProviders: []string{onDemand, onSpot}}); err != nil {
			return nil, fmt.Errorf("cluster %s does not exist: %w", b.cfg.ClusterName, classify(podgroup.ActionList, err))
		}
		list, err = b.api.ListTasks(ctx, in)
	}
	return list, classify(podgroup.ActionList, err)
}

// ended returns the tasks of a list that have stopped, as they were described then: they do not
// change any more, while ECS lists them for an hour. The others are unknown.
func (b *backend) ended(arns []string) (tasks []types.Task, unknown []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, arn := range arns {
		if t, ok := b.stopped[arn]; ok {
			tasks = append(tasks, t)
		} else {
			unknown = append(unknown, arn)
		}
	}
	return tasks, unknown
}

// end notes those of the tasks that have stopped.
func (b *backend) end(tasks []types.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.stopped, func(_ string, t types.Task) bool { return time.Since(aws.ToTime(t.StoppedAt)) > shownFor })
	for _, t := range tasks {
		if aws.ToString(t.LastStatus) == statusStopped && t.StoppedAt != nil {
			b.stopped[aws.ToString(t.TaskArn)] = t
		}
	}
}

func (b *backend) describe(ctx context.Context, arns []string) ([]types.Task, error) {
	out, err := b.api.DescribeTasks(ctx, &ecs.DescribeTasksInput{Cluster: &b.cfg.ClusterName, Tasks: arns, Include: []types.TaskField{types.TaskFieldTags}})
	if err != nil {
		return nil, classify(podgroup.ActionList, err)
	}
	for _, f := range out.Failures {
		if reason := aws.ToString(f.Reason); reason != "MISSING" { // since it was listed
			return nil, errdefs.AsUnavailable(fmt.Errorf("ECS does not describe task %s: %s", aws.ToString(f.Arn), reason))
		}
	}
	return out.Tasks, nil
}

// isDeleted reports whether a task has stopped because its pod was deleted, or was deleted
// after it had stopped.
func (b *backend) isDeleted(t *types.Task) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return aws.ToString(t.LastStatus) == statusStopped && b.deletedBefore(t)
}

// deletedBefore reports whether the pod of a task was deleted. The caller holds b.mu.
func (b *backend) deletedBefore(t *types.Task) bool {
	_, deleted := b.deleted[aws.ToString(t.TaskArn)]
	return deleted || strings.Contains(aws.ToString(t.StoppedReason), stopReason)
}

// probe applies what the health checks of a task mean for the probes of its pod: an unhealthy
// container is not ready, and a task whose liveness probe or init container has failed is stopped,
// since ECS replaces tasks of its own services only.
func (b *backend) probe(ctx context.Context, u *podgroup.Unit, t *types.Task) {
	pod := b.podOf(u.Tags)
	if pod == nil || u.Phase != podgroup.Running {
		return
	}
	sick := false
	for i := range t.Containers {
		c := u.Container(aws.ToString(t.Containers[i].Name))
		for _, spec := range pod.Spec.Containers {
			if spec.Name != c.Name {
				continue
			}
			c.Ready = nil
			if spec.ReadinessProbe != nil {
				c.Ready = new(t.Containers[i].HealthStatus == types.HealthStatusHealthy)
			}
			sick = sick || spec.LivenessProbe != nil && t.Containers[i].HealthStatus == types.HealthStatusUnhealthy
		}
	}
	switch {
	case sick:
		_ = b.stop(ctx, u.ID, sickReason) // the next list tries it again
	case hasFailedInit(pod, u) && aws.ToString(t.DesiredStatus) != statusStopped:
		_ = b.stop(ctx, u.ID, initReason)
	}
}

// hasFailedInit reports whether an init container of a pod has failed. What depends on it does not
// start, and Fargate has been seen to keep such tasks, and charge for them, for ever.
func hasFailedInit(pod *corev1.Pod, u *podgroup.Unit) bool {
	failed := func(name string) bool {
		c := u.Container(name)
		return c != nil && c.Now.State == podgroup.Terminated && c.Now.ExitCode != 0
	}
	return failed(filesContainer) || slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return !podspec.IsSidecar(&c) && failed(c.Name)
	})
}

// podOf returns the pod of a task as the API has it, or nil.
func (b *backend) podOf(tags map[string]string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = tags[podgroup.TagNamespace], tags[podgroup.TagPodName], kubetypes.UID(tags[podgroup.TagUID])
	return b.original(pod)
}
