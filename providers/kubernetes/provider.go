package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/claims"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/reflection"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/services"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

var (
	_ node.PodUIDLifecycleHandler = (*Provider)(nil)
	_ node.PodNotifier            = (*Provider)(nil)
	_ node.NodeProvider           = (*Provider)(nil)
	_ nodeutil.Provider           = (*Provider)(nil)
)

// errandRunners is how many errands are run at the same time.
const errandRunners = 4

// Provider runs pods in a remote cluster. Make one with New. It is safe for
// concurrent use.
type Provider struct {
	cfg       Config
	home      nodeutil.ProviderConfig
	translate *translate.Options
	started   time.Time

	clients
	namespace string // the only remote one, or all

	reflector *reflection.Reflector
	claims    *claims.Claims            // nil where no storage class is mapped
	services  *services.Services        // nil where they are not reflected
	feed      *feed                     // of the informer
	informer  cache.SharedIndexInformer // remote pods of this node
	heard     cache.ResourceEventHandlerRegistration
	errands   workqueue.TypedRateLimitingInterface[errand]
	cpu       cpuTimes
	early     earlyEvents
	identity  identity
	outage    outage

	ctx     context.Context // of all that runs
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	notify     func(*corev1.Pod)
	gone       map[types.UID]*replacement // remote pods to be created again, by UID at home
	replaced   map[types.UID]replaced     // those that were, by UID at home
	doubts     map[types.UID]*corev1.Pod  // remote pods that a list lacks, by UID at home: see doubt
	met        map[types.UID]struct{}     // pods that this provider has had, by UID at home
	namespaces map[string]struct{}        // remote ones that are known to exist
	waiting    map[types.UID]*waiting     // remote pods without a node, by their UID
	ending     map[types.UID]bool         // remote pods that somebody else deletes, by their UID: whether they should be gone
}

// New makes the provider of a node. It does not ask the remote cluster anything:
// see Ping.
func New(ctx context.Context, home nodeutil.ProviderConfig, cfg Config) (*Provider, error) {
	options, err := cfg.translation(home.Node.Name)
	if err != nil {
		return nil, err
	}
	config, err := cfg.Remote.Config()
	if err != nil {
		return nil, err
	}
	remote, err := clientset.NewForConfig(nodeutil.Protobuf(config))
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for the remote cluster: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for the remote cluster: %w", err)
	}
	return newProvider(ctx, home, cfg, options, clients{config, remote, meta})
}

// clients are those of the remote cluster.
type clients struct {
	rest     *rest.Config
	remote   clientset.Interface
	metadata metadata.Interface
}

func newProvider(ctx context.Context, home nodeutil.ProviderConfig, cfg Config, options *translate.Options, clients clients) (*Provider, error) {
	p := &Provider{
		cfg: cfg, home: home, translate: options, started: time.Now(), clients: clients,
		gone:       map[types.UID]*replacement{},
		replaced:   map[types.UID]replaced{},
		doubts:     map[types.UID]*corev1.Pod{},
		met:        map[types.UID]struct{}{},
		namespaces: map[string]struct{}{},
		waiting:    map[types.UID]*waiting{},
		ending:     map[types.UID]bool{},
		identity:   newIdentity(home.Client.CoreV1()),
	}
	var err error
	// From here on there is what Close ends: queues have goroutines.
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.errands = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[errand](time.Second, time.Minute))
	if cfg.Namespaces.Mapping == translate.Fixed {
		p.namespace = cfg.Namespaces.Name
	}
	p.reflector = reflection.New(reflection.Options{
		Translate:       options,
		Objects:         home.Objects,
		Tokens:          volume.Client{Interface: home.Client},
		NodeAllocatable: home.NodeAllocatable,
		Remote:          p.remote,
		Environment:     p.environmentOf,
		MayBegin:        p.mayBegin,
		ReportFailure:   p.tellNotReflected,
	})
	if len(cfg.StorageClasses) > 0 {
		p.claims = p.newClaims()
	}
	p.feed = p.newFeed()
	p.informer = p.newInformer()
	if cfg.Services {
		p.services = services.New(services.Options{
			Translate: options, Home: home.Client, Remote: p.remote, IsUsed: p.uses, MayBegin: p.mayBegin,
			ReportFailure: func(service *corev1.Service, err error) {
				home.Events.Event(service, corev1.EventTypeWarning, "FailedReflection", err.Error())
			},
		})
	}
	if p.heard, err = p.informer.AddEventHandler(p.podEvents()); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot watch the remote pods: %w", err), p.Close())
	}
	p.describe(home.Node)
	return p, nil
}

func (p *Provider) newClaims() *claims.Claims {
	return claims.New(claims.Options{
		Translate: p.translate, Classes: p.cfg.StorageClasses, Delete: p.cfg.DeleteClaims,
		Home: p.home.Client, Remote: p.remote, MayBegin: p.mayBegin,
		EnsureNamespace: p.makeNamespace, // it may have gone since
		RecordEvent: func(claim *corev1.PersistentVolumeClaim, kind, reason, message string) {
			p.home.Events.Event(claim, kind, reason, message)
		},
	})
}

// newInformer watches the remote pods of this node.
func (p *Provider) newInformer() cache.SharedIndexInformer {
	lw := listwatch.Patient("remote pods", &cache.ListWatch{ListWithContextFunc: p.feed.list, WatchFuncWithContext: p.feed.watch})
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, p.remote), &corev1.Pod{}, 0, cache.Indexers{byHome: homeNamespace, byUID: homeUID})
}

// The indexes of remote pods, by their namespace and UID at home.
const (
	byHome = "home"
	byUID  = "uid"
)

func homeNamespace(obj any) ([]string, error) {
	if remote, ok := obj.(*corev1.Pod); ok {
		return []string{translate.NameOf(remote).Namespace}, nil
	}
	return nil, nil
}

func homeUID(obj any) ([]string, error) {
	if remote, ok := obj.(*corev1.Pod); ok {
		return []string{string(translate.UIDOf(remote))}, nil
	}
	return nil, nil
}

// heardOf returns the remote pods of one at home as they were last heard of: most
// often one.
func (p *Provider) heardOf(uid types.UID) (remotes []*corev1.Pod) {
	objects, err := p.informer.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil {
		return nil // there is no such index
	}
	for _, obj := range objects {
		if remote, ok := obj.(*corev1.Pod); ok {
			remotes = append(remotes, remote)
		}
	}
	if doubtful := p.doubtful(uid); doubtful != nil {
		remotes = append(remotes, doubtful)
	}
	return remotes
}

// uses reports whether pods of a namespace at home are in the remote cluster.
func (p *Provider) uses(namespace string) bool {
	keys, err := p.informer.GetIndexer().IndexKeys(byHome, namespace)
	if err == nil && len(keys) > 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, doubtful := range p.doubts {
		if translate.NameOf(doubtful).Namespace == namespace {
			return true
		}
	}
	return false
}

// NotifyPods implements node.PodNotifier. It starts what runs in the background,
// until Close.
func (p *Provider) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	p.mu.Lock()
	p.notify = notify
	p.mu.Unlock()
	run := log.WithLogger(p.ctx, log.G(ctx))
	p.running.Go(func() {
		if p.awaitIdentity(run) && p.awaitPods(run) {
			p.start(run)
		}
	})
}

// awaitPods returns when the pods at home are known: what is observed of a remote pod
// before could not be put down to one of them, and is not observed again. False means that
// ctx has ended.
func (p *Provider) awaitPods(ctx context.Context) bool {
	return p.home.PodsSynced == nil || cache.WaitForCacheSync(ctx.Done(), p.home.PodsSynced)
}

// claimInterval is how often to look whether this process has the node again.
const claimInterval = 5 * time.Second

// mayBegin reports whether this process may create or delete something of its own
// accord: another one may have the node.
func (p *Provider) mayBegin() bool { return p.home.MayBegin == nil || p.home.MayBegin() }

// start starts what runs in the background, once it is known what is this home's.
func (p *Provider) start(run context.Context) {
	p.running.Go(func() { p.informer.RunWithContext(run) })
	p.running.Go(func() { p.reflector.Run(run) })
	for range errandRunners {
		p.running.Go(func() { p.runErrands(run) })
	}
	p.running.Go(func() { p.sweep(run) })
	if p.claims != nil {
		p.running.Go(func() { p.claims.Run(run) })
	}
	if p.services != nil {
		p.running.Go(func() { p.services.Run(run) })
	}
	if p.cfg.Events == nil || *p.cfg.Events {
		p.running.Go(func() { p.mirrorEvents(run) })
	}
}

// Close ends the provider. Pods run on, and the next one takes them up.
func (p *Provider) Close() error {
	p.cancel()
	p.errands.ShutDown()
	p.reflector.Close()
	if p.claims != nil {
		p.claims.Close()
	}
	if p.services != nil {
		p.services.Close()
	}
	p.running.Wait()
	return nil
}

// tell notifies of a status of a pod at home.
func (p *Provider) tell(remote *corev1.Pod, status corev1.PodStatus) {
	p.mu.Lock()
	notify := p.notify
	p.mu.Unlock()
	if notify != nil {
		notify(p.atHome(remote, status))
	}
}

// atHome returns the pod at home of a remote one, with its status there.
func (p *Provider) atHome(remote *corev1.Pod, status corev1.PodStatus) *corev1.Pod {
	name := translate.NameOf(remote)
	if local := p.local(remote); local != nil {
		pod := *local
		pod.Status = translate.OnlyContainersOf(status, local)
		return &pod
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: translate.UIDOf(remote), CreationTimestamp: remote.CreationTimestamp},
		Spec: corev1.PodSpec{
			NodeName: p.home.Node.Name, Containers: remote.Spec.Containers, InitContainers: remote.Spec.InitContainers,
			TerminationGracePeriodSeconds: remote.Spec.TerminationGracePeriodSeconds, // with which it is deleted if home has no such pod
		},
		Status: status,
	}
}

// local returns the pod at home of a remote one, or nil if it is not known.
func (p *Provider) local(remote *corev1.Pod) *corev1.Pod {
	name := translate.NameOf(remote)
	local, err := p.home.Pods.Pods(name.Namespace).Get(name.Name)
	if err != nil || local.UID != translate.UIDOf(remote) {
		return nil
	}
	return local
}

// event records an event on a pod at home.
func (p *Provider) event(pod *corev1.Pod, kind, reason, message string) {
	p.home.Events.Event(pod, kind, reason, message)
}

func (p *Provider) tellNotReflected(pod *corev1.Pod, err error) {
	p.event(pod, corev1.EventTypeWarning, "FailedReflection", err.Error())
}
