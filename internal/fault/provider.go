package fault

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// Provider stands before a pod provider. Give its Handler to a controller; it may
// be given to another one after the first has ended.
type Provider struct {
	inner node.PodLifecycleHandler
	byUID node.PodUIDLifecycleHandler // nil where inner is none
	dice  *dice
	weather

	// MaxDelay is the longest Delay, MaxHang how long a Stubborn call takes at
	// most. Set them before the first call, if at all; they are 2 s and 20 s.
	MaxDelay, MaxHang time.Duration

	// Begins, if set, is called with each call as it begins, but for NotifyPods, and
	// what it returns is called as that ends. GetPods is about no pod, and the methods that
	// ask by name give no UID. Set it before the first call.
	Begins func(method string, pod types.NamespacedName, uid types.UID) (ends func())

	// IsToEnd, if set, reports whether a pod of that name that the provider holds is to
	// be deleted, or is gone, in the API. Set it before the first call.
	IsToEnd func(pod types.NamespacedName) bool

	news     sync.Mutex
	notify   func(*corev1.Pod)
	last     map[types.NamespacedName]*corev1.Pod // what was notified last
	vanished map[types.UID]struct{}
	lied     map[types.NamespacedName]struct{}
	refused  map[types.NamespacedName]struct{}
	empty    time.Time // until then it knows nothing
}

// NewProvider returns a calm Provider before inner.
func NewProvider(inner node.PodLifecycleHandler, seed uint64) *Provider {
	byUID, _ := inner.(node.PodUIDLifecycleHandler)
	return &Provider{
		inner:    inner,
		byUID:    byUID,
		dice:     newDice(seed),
		MaxDelay: 2 * time.Second,
		MaxHang:  20 * time.Second,
		last:     map[types.NamespacedName]*corev1.Pod{},
		vanished: map[types.UID]struct{}{},
		lied:     map[types.NamespacedName]struct{}{},
		refused:  map[types.NamespacedName]struct{}{},
	}
}

// Break has calls go wrong as planned from now on.
func (p *Provider) Break(plan Plan) { p.brew(plan) }

// Calm has nothing more go wrong. Calls that hang fail at once.
func (p *Provider) Calm() {
	p.clear()
	p.news.Lock()
	defer p.news.Unlock()
	p.empty = time.Time{}
}

// Empty has the provider know none of its pods for a while: lists show nothing, and a
// pod that is asked for is not there. Then they are there again. That a pod which is to
// be deleted (see IsToEnd) is not there is a lie that no caller can detect;
// the test decides about all other answers meanwhile.
func (p *Provider) Empty(d time.Duration) {
	p.news.Lock()
	defer p.news.Unlock()
	if until := time.Now().Add(d); until.After(p.empty) {
		p.empty = until
	}
}

// isEmpty reports whether the provider knows nothing at the moment.
func (p *Provider) isEmpty() bool {
	p.news.Lock()
	defer p.news.Unlock()
	return time.Now().Before(p.empty)
}

// Lied reports whether an answer about a pod of that name was ever untrue, in a
// way that no caller can know: that a pod is not there, or another one.
func (p *Provider) Lied(namespace, name string) bool {
	p.news.Lock()
	defer p.news.Unlock()
	_, lied := p.lied[types.NamespacedName{Namespace: namespace, Name: name}]
	return lied
}

// Refused reports whether a CreatePod of that name ever failed with a permanent error.
func (p *Provider) Refused(namespace, name string) bool {
	p.news.Lock()
	defer p.news.Unlock()
	_, refused := p.refused[types.NamespacedName{Namespace: namespace, Name: name}]
	return refused
}

// Forget forgets the answers about pods, and with them the lies. It is for the moment
// at which there are none, in a test so long that this would count.
func (p *Provider) Forget() {
	p.news.Lock()
	defer p.news.Unlock()
	clear(p.last)
	clear(p.vanished)
	clear(p.lied)
	clear(p.refused)
}

// Handler returns what implements the same interfaces of package node as the
// provider behind does.
func (p *Provider) Handler() node.PodLifecycleHandler {
	notifier, notifies := p.inner.(node.PodNotifier)
	switch {
	case notifies && p.byUID != nil:
		return struct {
			handlerByUID
			notifications
		}{handlerByUID{handler{p}}, notifications{p, notifier}}
	case notifies:
		return struct {
			handler
			notifications
		}{handler{p}, notifications{p, notifier}}
	case p.byUID != nil:
		return handlerByUID{handler{p}}
	}
	return handler{p}
}

// handler is a Provider before a node.PodLifecycleHandler.
type handler struct{ p *Provider }

func (h handler) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	err := h.p.call(ctx, "CreatePod", nameOf(pod), pod.UID, changes, func() error {
		h.p.reappear(pod)
		return h.p.inner.CreatePod(ctx, pod)
	})
	if errdefs.IsPermanent(err) {
		h.p.news.Lock()
		defer h.p.news.Unlock()
		h.p.refused[nameOf(pod)] = struct{}{}
	}
	return err
}

func (h handler) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	return h.p.call(ctx, "UpdatePod", nameOf(pod), pod.UID, changes, func() error {
		if h.p.isEmpty() {
			return unknownPod(pod)
		}
		return h.p.inner.UpdatePod(ctx, pod)
	})
}

func (h handler) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	return h.p.call(ctx, "DeletePod", nameOf(pod), pod.UID, finds, func() error {
		if err := h.p.overlook("DeletePod", pod); err != nil {
			return err
		}
		return h.p.inner.DeletePod(ctx, pod)
	})
}

func (h handler) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return h.p.get(ctx, "GetPod", namespace, name, "", func() (*corev1.Pod, error) { return h.p.inner.GetPod(ctx, namespace, name) })
}

func (h handler) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	return h.p.getStatus(ctx, namespace, name, "", func() (*corev1.PodStatus, error) {
		return h.p.inner.GetPodStatus(ctx, namespace, name)
	})
}

func (h handler) GetPods(ctx context.Context) (shown []*corev1.Pod, err error) {
	err = h.p.call(ctx, "GetPods", types.NamespacedName{}, "", finds, func() error {
		pods, err := h.p.inner.GetPods(ctx)
		for _, pod := range pods {
			if pod, err := h.p.show(ctx, "GetPods", pod); err == nil {
				shown = append(shown, pod)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return shown, nil
}

// handlerByUID is one before a node.PodUIDLifecycleHandler.
type handlerByUID struct{ handler }

func (h handlerByUID) GetPodByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	return h.p.get(ctx, "GetPodByUID", namespace, name, uid, func() (*corev1.Pod, error) {
		return h.p.byUID.GetPodByUID(ctx, namespace, name, uid)
	})
}

func (h handlerByUID) GetPodStatusByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	return h.p.getStatus(ctx, namespace, name, uid, func() (*corev1.PodStatus, error) {
		return h.p.byUID.GetPodStatusByUID(ctx, namespace, name, uid)
	})
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

var (
	_ node.PodLifecycleHandler    = handler{}
	_ node.PodUIDLifecycleHandler = handlerByUID{}
)
