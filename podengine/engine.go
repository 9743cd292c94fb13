package podengine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/internal/runtimemetrics"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/probe"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// Config configures an Engine.
type Config struct {
	// Boot identifies the run of the machine since it was booted, by a name that a file
	// can have, if it is not empty: containers of an earlier one do not run any more.
	Boot string
	// Node is what the configuration of sandboxes and containers depends on.
	// Its Name, the node's, and its LogRoot are required.
	Node convert.Node
	// Runtime and Images run containers, and hold images. Required.
	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	// Streams, if set, is what exec, attach and port-forward connect to, by the IDs of
	// containers and sandboxes, for a runtime in this process. Nil means that they go by
	// the URLs that the runtime gives, with a second connection for each session.
	Streams streaming.Runtime
	// Root is the directory of the engine's state and of volumes. Required.
	// No two engines may share one.
	Root string

	// Objects, Services and Tokens are where environments and volumes get
	// ConfigMaps, Secrets, service links and service account tokens from.
	// Required.
	Objects  node.ObjectSource
	Services corev1listers.ServiceLister
	Tokens   volume.TokenRequester
	// Sent says that pods come from another process, with what is in their volumes
	// (CreatePodWithVolumes) and with their environment resolved, but for what depends on
	// their addresses. Objects has nothing but image pull secrets then, and Tokens is not
	// needed.
	Sent bool
	// Events records events on pods. Required.
	Events record.EventRecorder
	// Metrics is where the calls of the runtime are counted and timed, as
	// kubelet_runtime_operations_*; nil means nowhere.
	Metrics prometheus.Registerer

	// DNS is what the node knows of name resolution.
	DNS podspec.DNS
	// HostsFile returns the host's /etc/hosts, for pods on its network; nil
	// means none.
	HostsFile func() []byte
	// HostIPs returns the node's addresses, the primary one first. Required.
	HostIPs func() []string
	// NodeAllocatable returns what the node can allocate, for containers that
	// ask for their limits and have none; nil means nothing.
	NodeAllocatable func() corev1.ResourceList
	// AllowHostPath decides whether a pod may have a path of the host: see
	// volume.Options. Nil denies all.
	AllowHostPath func(volume.HostAccess) error
	// NoLinksFollowed says that the runtime follows no links in paths of the host:
	// see volume.Options.
	NoLinksFollowed bool
	// Claims resolves persistent volume claims; nil means that they are not
	// supported.
	Claims volume.Claims
	// NodeLabels returns the labels of the node, for the node affinity of claimed volumes:
	// see volume.Options. Nil means that it does not matter.
	NodeLabels func(ctx context.Context) (map[string]string, error)
	// UnsafeSysctls are the sysctls that pods may set besides the safe ones;
	// those that end in * stand for all that begin so.
	UnsafeSysctls []string
	// CgroupParent of all pods, where Cgroups is nil; the runtime's default if empty.
	CgroupParent string
	// Cgroups places each pod in a control group of its own; nil leaves that to the
	// runtime.
	Cgroups Cgroups
	// FirstUserID is the first of the host's user and group IDs of which pods with
	// users of their own (hostUsers: false, KEP-127) get 65536 each, the lowest
	// first. Engines and kubelets that share a machine need ranges of their own.
	// Defaults to 65536.
	FirstUserID uint32
	// RuntimeClasses resolves the runtime classes that pods name; nil means
	// that such pods do not run here.
	RuntimeClasses RuntimeClasses
	// Logs limits the logs of containers.
	Logs LogLimits
	// LogLinks is the directory of a link to the log of each container, named
	// POD_NAMESPACE_CONTAINER-ID.log, which log collectors read. There are none if
	// it is empty.
	LogLinks string
	// NeverRan reports whether a container that has ended has not run at all, and
	// will not, although its start was asked for. Such a container is made again. It
	// is for runtimes that give a start up with the connection of the process that
	// asked for it; nil means that there are no such containers.
	NeverRan func(*runtimeapi.ContainerStatus) bool
	// ParallelPulls is how many images are pulled at once. Defaults to 1, as a
	// kubelet's; there is no limit if it is negative.
	ParallelPulls int
	// ImageVerification says of which images that are there a pod must have the
	// credentials to pull them.
	ImageVerification ImageVerification
	// Eviction says when pods are ended for want of something.
	Eviction Eviction
	// ImageGC says which images are removed, and when.
	ImageGC ImageGC
}

// Engine runs pods with a container runtime. It is a node.PodLifecycleHandler,
// a node.PodUIDLifecycleHandler and a node.PodNotifier. Make one with New.
type Engine struct {
	cfg         Config
	runtimeName runtimeName
	started     time.Time
	known       known
	volumes     *volume.Manager
	sent        *sentVolumes // nil unless pods are sent
	probes      *probe.Manager
	prober      *probe.Prober
	puller      *image.Puller
	records     *image.Records
	ended       *prometheus.CounterVec // containers
	collector   *image.Collector       // nil if somebody else removes images
	pressed     atomic.Pointer[[]corev1.NodeConditionType]
	disk        diskUses

	ctx         context.Context // of all workers
	cancel      context.CancelFunc
	running     sync.WaitGroup
	unsubscribe func() // from changes of objects

	taking     sync.Mutex         // one pod at a time is taken
	clearing   map[types.UID]bool // pods whose remains are being removed; guarded by taking
	unrecorded []types.UID        // pods of which something is left without a checkpoint; of load
	allocating sync.Mutex         // one pod at a time is given resources
	ids        sync.Mutex         // one pod at a time gets user IDs

	mu      sync.Mutex
	closed  bool
	workers map[types.UID]*worker
	notify  func(*corev1.Pod)
	unheard []*corev1.Pod // of an earlier process, that went before there was a listener
}

// New makes an Engine, which goes on with the pods that an earlier one left. The
// runtime need not be up: until it is, pods wait, and Ping fails. The
// context's values are those of everything that it does; it ends with Close, and
// not with ctx.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var err error
	if cfg.Runtime, cfg.Images, err = runtimemetrics.Measured(cfg.Metrics, cfg.Runtime, cfg.Images); err != nil {
		return nil, fmt.Errorf("cannot measure the calls of the container runtime: %w", err)
	}
	ended, err := newTerminations(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("cannot count the ends of containers: %w", err)
	}
	cfg.Runtime = tracedRuntime{cfg.Runtime}
	if err := os.MkdirAll(cfg.Root, 0o750); err != nil {
		return nil, fmt.Errorf("cannot make the engine's directory: %w", err)
	}
	e := &Engine{
		cfg:      cfg,
		started:  time.Now(),
		ended:    ended,
		workers:  map[types.UID]*worker{},
		prober:   probe.NewProber(probe.Options{Exec: probe.ExecSync(cfg.Runtime)}),
		clearing: map[types.UID]bool{},
	}
	left, broken, err := e.load()
	if err != nil {
		return nil, err // else what runs would be taken for orphans
	}
	for _, err := range broken {
		log.G(ctx).WithError(err).Error("A pod of an earlier process is lost, and removed unless it is created again")
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := e.makeComponents(); err != nil {
		e.cancel()
		return nil, err
	}
	e.allocating.Lock() // until all are there who have resources
	for _, c := range left {
		e.resume(c)
	}
	e.allocating.Unlock()
	e.running.Go(func() { e.watchRuntime(e.ctx) })
	e.running.Go(func() { e.rotateLogs(e.ctx) })
	e.running.Go(func() { e.collectImages(e.ctx) })
	e.running.Go(func() { e.watchPressure(e.ctx) })
	e.running.Go(func() { e.watchDiskUse(e.ctx) })
	return e, nil
}

func (cfg *Config) validate() error {
	var missing []string
	check := func(ok bool, field string) {
		if !ok {
			missing = append(missing, field)
		}
	}
	check(cfg.Node.Name != "", "Node.Name")
	check(cfg.Node.LogRoot != "", "Node.LogRoot")
	check(cfg.Runtime != nil, "Runtime")
	check(cfg.Images != nil, "Images")
	check(cfg.Root != "", "Root")
	check(cfg.Objects != nil, "Objects")
	check(cfg.Services != nil, "Services")
	check(cfg.Tokens != nil || cfg.Sent, "Tokens")
	check(cfg.Events != nil, "Events")
	check(cfg.HostIPs != nil, "HostIPs")
	if len(missing) > 0 {
		return errdefs.InvalidInputf("the engine's Config lacks %v: set them before New", missing)
	}
	return nil
}

// resume goes on with a pod of an earlier process.
func (e *Engine) resume(c checkpoint) {
	w := newWorker(e, c.Pod, c.Taken)
	w.resumed = true
	w.attempts, w.superseded, w.restarting = c.Attempts, c.Superseded, c.Restarting
	if c.Resize != nil && c.Resize.Wanted != nil {
		w.resize = &resize{wanted: c.Resize.Wanted, pending: c.Resize.Pending, since: c.Resize.Since}
	}
	if c.status != nil {
		w.status = c.status
		w.recallResources()
	}
	w.stop = c.stop()
	_ = e.add(w) // which fails if the engine is closed, and that is still to be returned
}

// Close ends the engine. Containers run on, and an engine that is made with the
// same Root goes on with them.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.unsubscribe()
	e.cancel()
	e.running.Wait()
	e.probes.Close()
	e.puller.Close()
	return nil
}

// NotifyPods implements node.PodNotifier.
func (e *Engine) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	e.mu.Lock()
	workers, unheard := slices.Collect(maps.Values(e.workers)), e.unheard
	e.notify, e.unheard = notify, nil
	e.mu.Unlock()
	for _, pod := range unheard {
		notify(pod)
	}
	for _, w := range workers {
		if w.snapshot().Status.Phase != "" {
			w.notify()
		}
	}
}

// listener is the function that is notified of changes of pods, or nil.
func (e *Engine) listener() func(*corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.notify
}

// all are the workers of now.
func (e *Engine) all() []*worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.workers))
}

// CreatePod takes a pod, and returns before it runs. One that does not fit the
// node fails. One with a volume of a kind that nobody mounts is refused for good.
func (e *Engine) CreatePod(ctx context.Context, pod *corev1.Pod) (err error) {
	_, span := startSpan(ctx, "acceptPod", pod)
	defer endSpan(span, &err)
	if err := e.volumes.Check(pod); err != nil {
		return err
	}
	pod = pod.DeepCopy()
	e.taking.Lock()
	defer e.taking.Unlock()
	if w := e.worker(pod.UID); w != nil {
		w.causedBy(span)
		return w.update(pod)
	}
	if e.clearing[pod.UID] {
		return errdefs.AsUnavailable(fmt.Errorf("what was left of pod %s/%s is being removed: it can be created after that", pod.Namespace, pod.Name))
	}
	w := newWorker(e, pod, time.Now())
	w.causedBy(span)
	failure := e.cfg.admit(pod)
	if failure == nil {
		failure = e.underPressure(pod)
	}
	if failure != nil {
		failure.Rejected = true
		w.stop = &stop{by: time.Now(), failure: failure}
		e.cfg.Events.Event(pod, corev1.EventTypeWarning, failure.Reason, failure.Message)
	}
	if err := w.persist(w.desired); err != nil { // before anything is made in the runtime
		return err
	}
	return e.add(w)
}

// add starts the worker of a pod that was taken.
func (e *Engine) add(w *worker) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errdefs.AsUnavailable(errors.New("the pod engine has been closed"))
	}
	e.workers[w.pod.UID] = w
	e.running.Go(func() { w.run(e.ctx) })
	return nil
}

// UpdatePod takes a newer form of a pod.
func (e *Engine) UpdatePod(ctx context.Context, pod *corev1.Pod) (err error) {
	_, span := startSpan(ctx, "acceptUpdate", pod)
	defer endSpan(span, &err)
	w := e.worker(pod.UID)
	if w == nil {
		return notHeld(pod)
	}
	w.causedBy(span)
	return w.update(pod.DeepCopy())
}

// DeletePod ends a pod within its DeletionGracePeriodSeconds, and returns before
// it has ended. An earlier end than was asked for before counts.
func (e *Engine) DeletePod(ctx context.Context, pod *corev1.Pod) (err error) {
	_, span := startSpan(ctx, "acceptDeletion", pod)
	defer endSpan(span, &err)
	w := e.worker(pod.UID)
	if w == nil {
		return notHeld(pod)
	}
	w.causedBy(span)
	return w.delete(time.Now().Add(podspec.GracePeriod(pod, nil)))
}

func notHeld(pod *corev1.Pod) error {
	return errdefs.NotFoundf("pod %s/%s with UID %s does not run here", pod.Namespace, pod.Name, pod.UID)
}

func (e *Engine) worker(uid types.UID) *worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.workers[uid]
}

// byName returns the worker of a pod by its name; of several, the one whose pod
// came last.
func (e *Engine) byName(namespace, name string) *worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	var newest *worker
	for _, w := range e.workers {
		pod, _ := w.current()
		if pod.Namespace == namespace && pod.Name == name && (newest == nil || newest.taken.Before(w.taken)) {
			newest = w
		}
	}
	return newest
}

// GetPod implements node.PodLifecycleHandler.
func (e *Engine) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	w := e.byName(namespace, name)
	if w == nil {
		return nil, errdefs.NotFoundf("pod %s/%s does not run here", namespace, name)
	}
	return w.snapshot(), nil
}

// GetPodStatus implements node.PodLifecycleHandler.
func (e *Engine) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := e.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPodByUID implements node.PodUIDLifecycleHandler.
func (e *Engine) GetPodByUID(_ context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	w := e.worker(uid)
	if w == nil {
		return nil, errdefs.NotFoundf("pod %s/%s with UID %s does not run here", namespace, name, uid)
	}
	return w.snapshot(), nil
}

// GetPodStatusByUID implements node.PodUIDLifecycleHandler.
func (e *Engine) GetPodStatusByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	pod, err := e.GetPodByUID(ctx, namespace, name, uid)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods implements node.PodLifecycleHandler.
func (e *Engine) GetPods(context.Context) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, w := range e.all() {
		pods = append(pods, w.snapshot())
	}
	return pods, nil
}

// drop forgets a pod that has ended and was deleted.
func (e *Engine) drop(uid types.UID) {
	e.mu.Lock()
	if w := e.workers[uid]; w != nil && w.resumed && e.notify == nil {
		if pod := w.snapshot(); pod.Status.Phase != "" {
			e.unheard = append(e.unheard, pod)
		}
	}
	delete(e.workers, uid)
	e.mu.Unlock()
	e.retryDeferred() // there is room now
}

// nudge wakes the worker of a pod.
func (e *Engine) nudge(uid types.UID) {
	if w := e.worker(uid); w != nil {
		w.nudge()
	}
}

// podIPs are the addresses of a pod in its sandbox, as its status has them.
func (e *Engine) podIPs(pod *corev1.Pod, box *sandbox) []string {
	hosts := e.cfg.HostIPs()
	if pod.Spec.HostNetwork {
		return podstatus.SortAddresses(hosts, nil)
	}
	return podstatus.SortAddresses(box.ips, hosts)
}

var (
	_ node.PodLifecycleHandler    = (*Engine)(nil)
	_ node.PodUIDLifecycleHandler = (*Engine)(nil)
	_ node.PodNotifier            = (*Engine)(nil)
)
