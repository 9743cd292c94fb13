package podwatch

import (
	"cmp"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Pods are the pods of one node. Make them with NewPods. What is read from them
// must not be changed: pods of one template share what is equal in them. The methods are
// safe for concurrent use.
type Pods struct {
	// order is held while something changes, until all subscribers know, so that
	// each learns of the changes in their order.
	order    sync.Mutex
	handlers map[*subscription]struct{}
	gone     map[types.NamespacedName]string // resource versions of deletions before the first view
	models   map[types.UID]*corev1.Pod       // of each template a pod, with which the others share what is equal
	asOf     string                          // resource version of the node's own list, until the watch has started again

	mu     sync.RWMutex // for what readers see
	pods   map[types.NamespacedName]*corev1.Pod
	synced chan struct{} // closed with the first whole view
}

type subscription struct{ cache.ResourceEventHandler }

// NewPods makes the pods of a node, of which none is known before it has joined
// a Watch.
func NewPods() *Pods {
	return &Pods{
		handlers: map[*subscription]struct{}{},
		gone:     map[types.NamespacedName]string{},
		models:   map[types.UID]*corev1.Pod{},
		pods:     map[types.NamespacedName]*corev1.Pod{},
		synced:   make(chan struct{}),
	}
}

// Get returns the pod of that name, or a NotFound error of the Kubernetes API.
func (p *Pods) Get(namespace, name string) (*corev1.Pod, error) {
	pod := p.get(types.NamespacedName{Namespace: namespace, Name: name})
	if pod == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return pod, nil
}

func (p *Pods) get(key types.NamespacedName) *corev1.Pod {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.pods[key]
}

// List returns all pods.
func (p *Pods) List() []*corev1.Pod {
	p.mu.RLock()
	defer p.mu.RUnlock()
	all := make([]*corev1.Pod, 0, len(p.pods))
	for _, pod := range p.pods {
		all = append(all, pod)
	}
	return all
}

// Synced is closed once all pods are known that there were at some moment.
func (p *Pods) Synced() <-chan struct{} { return p.synced }

// HasSynced reports whether Synced is closed.
func (p *Pods) HasSynced() bool {
	select {
	case <-p.synced:
		return true
	default:
		return false
	}
}

// Subscribe calls handler with the pods that are known, and with every change
// from then on, one at a time and in order. The calls must not block, nor
// subscribe. synced is closed once handler knows the pods of the first whole view.
func (p *Pods) Subscribe(handler cache.ResourceEventHandler) (synced <-chan struct{}, unsubscribe func(), err error) {
	p.order.Lock()
	defer p.order.Unlock()
	s := &subscription{handler}
	p.handlers[s] = struct{}{}
	for _, pod := range p.List() {
		handler.OnAdd(pod, true)
	}
	return p.synced, func() {
		p.order.Lock()
		defer p.order.Unlock()
		delete(p.handlers, s)
	}, nil
}

// set takes a pod as the watch shows it.
func (p *Pods) set(pod *corev1.Pod) {
	p.order.Lock()
	defer p.order.Unlock()
	if p.covers(pod.ResourceVersion) {
		return
	}
	p.put(pod)
}

// delete takes the deletion of a pod, whose resource version is the deletion's.
func (p *Pods) delete(pod *corev1.Pod) {
	p.order.Lock()
	defer p.order.Unlock()
	if p.covers(pod.ResourceVersion) {
		return
	}
	key := keyOf(pod)
	if !p.HasSynced() {
		p.gone[key] = pod.ResourceVersion
	}
	if p.pods[key] != nil {
		p.drop(key, pod)
	}
}

// covers reports whether a list of the node's own is newer than a change. The watch
// repeats what was in that list, and later, where the node has joined late.
func (p *Pods) covers(resourceVersion string) bool {
	order, ok := compare(resourceVersion, p.asOf)
	return ok && order <= 0
}

// goBack has the watch's next view stand, although the node's own list was of a later state.
func (p *Pods) goBack() {
	p.order.Lock()
	defer p.order.Unlock()
	p.asOf = ""
}

// replace takes the watch's whole view: all pods, as of a resource version.
func (p *Pods) replace(all []*corev1.Pod, resourceVersion string) {
	p.order.Lock()
	defer p.order.Unlock()
	if order, ok := compare(resourceVersion, p.asOf); ok && order < 0 {
		return // the node has a newer one
	}
	p.asOf = ""
	p.apply(all, func(before, pod *corev1.Pod) bool {
		return before == nil || before.ResourceVersion != pod.ResourceVersion || pod.ResourceVersion == ""
	}, func(*corev1.Pod) bool { return true })
}

// fill adds the node's own list, as of a resource version. Events of the watch
// since the node has joined stand where they are newer.
func (p *Pods) fill(all []*corev1.Pod, resourceVersion string) {
	p.order.Lock()
	defer p.order.Unlock()
	if p.HasSynced() {
		return // the watch has started again, and has the node's pods
	}
	p.asOf = resourceVersion
	p.apply(all, func(before, pod *corev1.Pod) bool {
		known := p.gone[keyOf(pod)]
		if before != nil {
			known = before.ResourceVersion
		}
		order, ok := compare(pod.ResourceVersion, known)
		return !ok || order > 0
	}, func(before *corev1.Pod) bool {
		order, ok := compare(before.ResourceVersion, resourceVersion)
		return !ok || order <= 0
	})
}

// apply applies a whole view: of its pods those that are new, and of those that are
// not in it those that are old, have changed. order is held.
func (p *Pods) apply(all []*corev1.Pod, isNew func(before, pod *corev1.Pod) bool, isOld func(before *corev1.Pod) bool) {
	found := make(map[types.NamespacedName]struct{}, len(all))
	for _, pod := range all {
		key := keyOf(pod)
		found[key] = struct{}{}
		if isNew(p.pods[key], pod) {
			p.put(pod)
		}
	}
	for key, before := range p.pods {
		if _, ok := found[key]; !ok && isOld(before) {
			p.drop(key, cache.DeletedFinalStateUnknown{Key: key.String(), Obj: before})
		}
	}
	p.gone = nil
	if !p.HasSynced() {
		close(p.synced)
	}
}

// resync calls the handlers with all pods again.
func (p *Pods) resync() {
	p.order.Lock()
	defer p.order.Unlock()
	for _, pod := range p.pods {
		for s := range p.handlers {
			s.OnUpdate(pod, pod)
		}
	}
}

// put keeps a pod, and calls the handlers. order is held.
func (p *Pods) put(pod *corev1.Pod) {
	key := keyOf(pod)
	before := p.pods[key]
	template := templateOf(pod)
	if like := cmp.Or(before, p.models[template]); like != nil {
		pod = share(pod, like, cmp.Or(p.models[template], like))
	}
	p.forgetModel(before)
	if p.models[template] == nil {
		p.models[template] = pod
	}
	p.mu.Lock()
	p.pods[key] = pod
	p.mu.Unlock()
	for s := range p.handlers {
		if before == nil {
			s.OnAdd(pod, !p.HasSynced())
		} else {
			s.OnUpdate(before, pod)
		}
	}
}

// drop keeps a pod no more, and calls the handlers. order is held.
func (p *Pods) drop(key types.NamespacedName, last any) {
	p.forgetModel(p.pods[key])
	p.mu.Lock()
	delete(p.pods, key)
	p.mu.Unlock()
	for s := range p.handlers {
		s.OnDelete(last)
	}
}

// forgetModel has others share with a pod, which may be nil, no more: it is not kept any more.
func (p *Pods) forgetModel(pod *corev1.Pod) {
	if pod == nil {
		return
	}
	if template := templateOf(pod); p.models[template] == pod {
		delete(p.models, template)
	}
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// compare orders two resource versions, if they can be compared: the fake
// clientset's cannot.
func compare(a, b string) (order int, ok bool) {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return order, err == nil
}
