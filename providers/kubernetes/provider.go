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

	"github.com/virtual-kubelet/virtual-kubelet/internal/cputime"
	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/claims"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/reflection"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/services"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

var (
	_ node.PodUIDLifecycleHandler = (*Provider)(nil)
	_ node.PodNotifier            = (*Provider)(nil)
	_ node.NodeProvider           = (*Provider)(nil)
	_ nodeutil.Provider           = (*Provider)(nil)
)

// workers is the number of work items that are processed at the same time.
const workers = 4

// Provider runs pods in a remote cluster. Create it with New. It is safe for concurrent
// use.
type Provider struct {
	cfg       Config
	home      nodeutil.ProviderConfig
	translate *translate.Options
	started   time.Time

	clients
	service   *Service // nil with a cluster
	namespace string   // the only remote one, or all
	adopted   sync.Map // the names of adopted remote pods by UID of the home pod: see remoteName

	reflector  *reflection.Reflector
	claims     *claims.Claims            // nil if no storage class is mapped
	services   *services.Services        // nil if Services are not copied
	listWatch  *podListWatch             // of the informer
	informer   cache.SharedIndexInformer // remote pods of this node
	podHandler cache.ResourceEventHandlerRegistration
	queue      workqueue.TypedRateLimitingInterface[workItem]
	cpu        cputime.Times
	early      earlyEvents
	identity   identity
	cluster    remoteCluster
	outage     outage

	ctx     context.Context // of all goroutines
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu           sync.Mutex
	notify       func(*corev1.Pod)
	replacements map[types.UID]*replacement    // remote pods to be created again, by UID of the home pod
	backoffs     map[types.UID]replaceBackoff  // of those that were, by UID of the home pod
	unconfirmed  map[types.UID]*corev1.Pod     // remote pods that a list lacks, by UID of the home pod: see markUnconfirmed
	seen         map[types.UID]struct{}        // UIDs of home pods that have had a remote pod
	namespaces   map[string]struct{}           // remote namespaces that are known to exist
	unscheduled  map[types.UID]*unscheduledPod // remote pods without a node, by their UID
	deleting     map[types.UID]bool            // remote pods that somebody else deletes, by their UID: whether they have missed their deadline
}

// New returns the provider of a node. It sends no request to the remote cluster: see
// Ping.
func New(ctx context.Context, home nodeutil.ProviderConfig, cfg Config) (*Provider, error) {
	options, err := cfg.translation(home.Node.Name)
	if err != nil {
		return nil, err
	}
	config, err := cfg.Remote.Config()
	if err != nil {
		return nil, err
	}
	clients, err := newClients(config, nodeutil.Protobuf(config))
	if err != nil {
		return nil, err
	}
	return newProvider(ctx, home, cfg, options, clients, nil)
}

// newClients returns the clients of the remote cluster. Typed ones use the second
// configuration.
func newClients(config, typed *rest.Config) (clients, error) {
	remote, err := clientset.NewForConfig(typed)
	if err != nil {
		return clients{}, fmt.Errorf("cannot create a client for the remote cluster: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("cannot create a client for the remote cluster: %w", err)
	}
	return clients{config, remote, meta}, nil
}

// clients are the clients of the remote cluster.
type clients struct {
	rest     *rest.Config
	remote   clientset.Interface
	metadata metadata.Interface
}

func newProvider(ctx context.Context, home nodeutil.ProviderConfig, cfg Config, options *translate.Options, clients clients, service *Service) (*Provider, error) {
	p := &Provider{
		cfg: cfg, home: home, translate: options, started: time.Now(), clients: clients, service: service,
		replacements: map[types.UID]*replacement{},
		backoffs:     map[types.UID]replaceBackoff{},
		unconfirmed:  map[types.UID]*corev1.Pod{},
		seen:         map[types.UID]struct{}{},
		namespaces:   map[string]struct{}{},
		unscheduled:  map[types.UID]*unscheduledPod{},
		deleting:     map[types.UID]bool{},
		identity:     newIdentity(home.Client.CoreV1()),
	}
	options.Unresolved, options.Expand, options.IsService = p.unresolvedPod, podenv.Expand, service != nil
	var err error
	// From here on, Close is needed: queues have goroutines.
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[workItem](time.Second, time.Minute))
	if cfg.Namespaces.Mapping == MappingFixed {
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
		MayWrite:        p.cluster.check,
		IsGone:          func(pod *corev1.Pod) bool { return !p.isAtHome(pod) && len(p.observedPods(pod.UID)) == 0 },
		ReportFailure:   p.recordFailedReflection,
	})
	if len(cfg.StorageClasses) > 0 {
		p.claims = p.newClaims()
	}
	p.listWatch = p.newPodListWatch()
	p.informer = p.newInformer()
	if cfg.Services {
		p.services = services.New(services.Options{
			Translate: options, Home: home.Client, Remote: p.remote, IsUsed: p.hasPodsOf, MayBegin: p.mayBegin,
			ReportFailure: func(service *corev1.Service, err error) {
				home.Events.Event(service, corev1.EventTypeWarning, "FailedReflection", err.Error())
			},
		})
	}
	if p.podHandler, err = p.informer.AddEventHandler(p.podEventHandler()); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot watch the remote pods: %w", err), p.Close())
	}
	p.setCapacity(home.Node)
	return p, nil
}

func (p *Provider) newClaims() *claims.Claims {
	return claims.New(claims.Options{
		Translate: p.translate, Classes: p.cfg.StorageClasses, Delete: p.cfg.DeleteClaims,
		Home: p.home.Client, Remote: p.remote, MayBegin: p.mayBegin,
		EnsureNamespace: p.createNamespace, // it may have been deleted
		RecordEvent: func(claim *corev1.PersistentVolumeClaim, kind, reason, message string) {
			p.home.Events.Event(claim, kind, reason, message)
		},
	})
}

// newInformer returns an informer of the remote pods of this node.
func (p *Provider) newInformer() cache.SharedIndexInformer {
	lw := &cache.ListWatch{ListWithContextFunc: p.listWatch.list, WatchFuncWithContext: p.listWatch.watch}
	return listwatch.Informer("remote pods", p.remote, lw, &corev1.Pod{}, cache.Indexers{byHome: homeNamespace, byUID: homeUID})
}

// The indexes of remote pods, by namespace and by UID of the home pod.
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

// observedPods returns the last observed state of the remote pods of a home pod;
// usually there is one.
func (p *Provider) observedPods(uid types.UID) (remotes []*corev1.Pod) {
	objects, err := p.informer.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil {
		return nil // there is no such index
	}
	for _, obj := range objects {
		if remote, ok := obj.(*corev1.Pod); ok {
			remotes = append(remotes, remote)
		}
	}
	if unconfirmed := p.unconfirmedPod(uid); unconfirmed != nil {
		remotes = append(remotes, unconfirmed)
	}
	return remotes
}

// hasPodsOf reports whether the remote cluster has pods of a home namespace.
func (p *Provider) hasPodsOf(namespace string) bool {
	keys, err := p.informer.GetIndexer().IndexKeys(byHome, namespace)
	if err == nil && len(keys) > 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, unconfirmed := range p.unconfirmed {
		if translate.NameOf(unconfirmed).Namespace == namespace {
			return true
		}
	}
	return false
}

// NotifyPods implements node.PodNotifier. It starts the background work, which runs
// until Close.
func (p *Provider) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	p.mu.Lock()
	p.notify = notify
	p.mu.Unlock()
	run := log.WithLogger(p.ctx, log.G(ctx))
	p.running.Go(func() {
		if p.waitForIdentity(run) && p.waitForHomePods(run) {
			p.start(run)
		}
	})
}

// waitForHomePods waits for the cache of home pods: events of remote pods whose home pod is
// unknown would be lost. It returns false if ctx ends.
func (p *Provider) waitForHomePods(ctx context.Context) bool {
	return p.home.PodsSynced == nil || cache.WaitForCacheSync(ctx.Done(), p.home.PodsSynced)
}

// mayBeginInterval is how often to check mayBegin while it returns false.
const mayBeginInterval = 5 * time.Second

// mayBegin reports whether this process may create or delete objects by itself: another
// process may hold the node, or another cluster be in the place of the remote one.
func (p *Provider) mayBegin() bool {
	return p.cluster.check() == nil && (p.home.MayBegin == nil || p.home.MayBegin())
}

// start starts the background work. The provider must be identified.
func (p *Provider) start(run context.Context) {
	p.running.Go(func() { p.informer.RunWithContext(run) })
	p.running.Go(func() { p.reflector.Run(run) })
	for range workers {
		p.running.Go(func() { p.runWorker(run) })
	}
	p.running.Go(func() { p.runHousekeeping(run) })
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

// Close stops the provider. Remote pods keep running; the next provider adopts them.
func (p *Provider) Close() error {
	p.cancel()
	p.queue.ShutDown()
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

// notifyStatus reports the status of a home pod.
func (p *Provider) notifyStatus(remote *corev1.Pod, status corev1.PodStatus) {
	p.mu.Lock()
	notify := p.notify
	p.mu.Unlock()
	if notify != nil {
		notify(p.homePodWithStatus(remote, status))
	}
}

// homePodWithStatus returns the home pod of a remote pod, with the given status.
func (p *Provider) homePodWithStatus(remote *corev1.Pod, status corev1.PodStatus) *corev1.Pod {
	name := translate.NameOf(remote)
	if local := p.homePod(remote); local != nil {
		pod := *local
		pod.Status = translate.OnlyContainersOf(status, local)
		return &pod
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: translate.UIDOf(remote), CreationTimestamp: remote.CreationTimestamp},
		Spec: corev1.PodSpec{
			NodeName: p.home.Node.Name, Containers: remote.Spec.Containers, InitContainers: remote.Spec.InitContainers,
			TerminationGracePeriodSeconds: remote.Spec.TerminationGracePeriodSeconds, // used to delete it if there is no home pod
		},
		Status: status,
	}
}

// homePod returns the home pod of a remote pod, or nil if it is unknown.
func (p *Provider) homePod(remote *corev1.Pod) *corev1.Pod {
	return p.localPod(translate.NameOf(remote), translate.UIDOf(remote))
}

// unresolvedPod returns a home pod as the API server has it, or nil if it is unknown.
func (p *Provider) unresolvedPod(pod *corev1.Pod) *corev1.Pod {
	return p.localPod(translate.Key(pod), pod.UID)
}

func (p *Provider) localPod(name types.NamespacedName, uid types.UID) *corev1.Pod {
	local, err := p.home.Pods.Pods(name.Namespace).Get(name.Name)
	if err != nil || local.UID != uid {
		return nil
	}
	return local
}

// recordEvent records an event on a home pod.
func (p *Provider) recordEvent(pod *corev1.Pod, kind, reason, message string) {
	p.home.Events.Event(pod, kind, reason, message)
}

func (p *Provider) recordFailedReflection(pod *corev1.Pod, err error) {
	p.recordEvent(pod, corev1.EventTypeWarning, "FailedReflection", err.Error())
}
