package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// workers is the number of Services written at the same time.
const workers = 2

// byService is the index of EndpointSlices by their Service.
const byService = "service"

const (
	// mayBeginInterval is how often to check MayBegin while it returns false.
	mayBeginInterval = 5 * time.Second
	// syncTimeout is the timeout of one attempt: a call that hangs would hold up
	// others.
	syncTimeout = time.Minute
)

// Options configure where Services are, and where they are copied to.
type Options struct {
	// Translate has the remote namespaces and addresses.
	Translate *translate.Options
	// Home and Remote are the clusters.
	Home, Remote kubernetes.Interface
	// MayBegin reports whether this process may write and delete Services: another
	// process may hold the node. Nil means always.
	MayBegin func() bool
	// IsUsed reports whether a home namespace has pods of the node. Required.
	IsUsed func(namespace string) bool
	// ReportFailure records an event on a home Service. It must not block. Required.
	ReportFailure func(service *corev1.Service, err error)
}

// Services copies Services. Create it with New. It is safe for concurrent use.
type Services struct {
	opts     Options
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	services cache.SharedIndexInformer
	slices   cache.SharedIndexInformer

	mu       sync.Mutex
	enqueued map[string]struct{} // home namespaces that have been queued
}

// New returns Services that do nothing before Run.
func New(opts Options) *Services {
	s := &Services{
		opts:     opts,
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, 2*time.Minute)),
		enqueued: map[string]struct{}{},
	}
	s.services = listwatch.Services(opts.Home, 0)
	s.slices = listwatch.Informer("endpoint slices", opts.Home, listwatch.Of(opts.Home.DiscoveryV1().EndpointSlices(metav1.NamespaceAll), nil), &discoveryv1.EndpointSlice{},
		cache.Indexers{byService: func(obj any) ([]string, error) {
			if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
				return []string{serviceOf(slice).String()}, nil
			}
			return nil, nil
		}})
	s.enqueueOnChange(s.services, func(object metav1.Object) types.NamespacedName {
		return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	})
	s.enqueueOnChange(s.slices, serviceOf)
	return s
}

// serviceOf returns the Service of an EndpointSlice.
func serviceOf(slice metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.GetNamespace(), Name: slice.GetLabels()[discoveryv1.LabelServiceName]}
}

// enqueueOnChange queues the Service of each object that changes.
func (s *Services) enqueueOnChange(informer cache.SharedIndexInformer, of func(metav1.Object) types.NamespacedName) {
	changed := func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if object, ok := obj.(metav1.Object); ok {
			if service := of(object); service.Name != "" {
				s.queue.Add(service)
			}
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, after any) { changed(after) },
		DeleteFunc: changed,
	})
}

// Run copies Services until ctx ends.
func (s *Services) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.services.RunWithContext(ctx) })
	running.Go(func() { s.slices.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), s.services.HasSynced, s.slices.HasSynced) {
		for range workers {
			running.Go(func() {
				for s.processNextItem(ctx) {
				}
			})
		}
	}
	<-ctx.Done()
	s.queue.ShutDown()
	running.Wait()
}

// Close stops Services, whether or not they have run.
func (s *Services) Close() { s.queue.ShutDown() }

// HasSynced reports whether the caches of home Services and EndpointSlices have synced.
func (s *Services) HasSynced() bool { return s.services.HasSynced() && s.slices.HasSynced() }

func (s *Services) processNextItem(ctx context.Context) bool {
	of, end := s.queue.Get()
	if end {
		return false
	}
	defer s.queue.Done(of)
	if s.opts.MayBegin != nil && !s.opts.MayBegin() {
		s.queue.AddAfter(of, mayBeginInterval)
		return true
	}
	timed, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	err := s.sync(timed, of)
	switch {
	case err == nil || ctx.Err() != nil:
		s.queue.Forget(of)
	case errors.As(err, new(translate.NameConflict)):
		s.queue.Forget(of) // CollectGarbage queues it again
		if service := s.service(of); service != nil {
			s.opts.ReportFailure(service, err)
		}
	default:
		log.G(ctx).WithError(err).WithField("service", of).Warn("Cannot copy a Service to the remote cluster; retrying")
		s.queue.AddRateLimited(of)
	}
	return true
}

// EnqueueNamespace queues the Services of a home namespace when its first pod is added.
// It does nothing for further pods.
func (s *Services) EnqueueNamespace(namespace string) {
	s.mu.Lock()
	_, looked := s.enqueued[namespace]
	s.enqueued[namespace] = struct{}{}
	s.mu.Unlock()
	if looked {
		return
	}
	found, err := s.services.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return // there is no such index
	}
	for _, obj := range found {
		if service, ok := obj.(*corev1.Service); ok {
			s.queue.Add(types.NamespacedName{Namespace: namespace, Name: service.Name})
		}
	}
}

// isUnused reports whether a home namespace has no pods. If so, EnqueueNamespace queues
// its Services with the next pod.
func (s *Services) isUnused(namespace string) bool {
	if s.opts.IsUsed(namespace) {
		return false
	}
	s.mu.Lock()
	delete(s.enqueued, namespace)
	s.mu.Unlock()
	return !s.opts.IsUsed(namespace) // EnqueueNamespace may have taken the namespace for queued meanwhile
}

// sync creates, updates or deletes the remote Service of one home Service.
func (s *Services) sync(ctx context.Context, of types.NamespacedName) error {
	remote, err := s.opts.Translate.Namespaces.Remote(of.Namespace)
	if err != nil {
		return nil // such a namespace has no pods
	}
	at := types.NamespacedName{Namespace: remote, Name: of.Name}
	service := s.service(of)
	switch {
	case service == nil:
		if there, err := s.isAtHome(ctx, of); err != nil || there {
			return err
		}
		return s.remove(ctx, of, at)
	case s.isUnused(of.Namespace):
		return nil // it may be used again soon; CollectGarbage deletes it otherwise
	}
	if ours, err := s.apply(ctx, service, at); err != nil || !ours {
		return err
	}
	return s.applySlices(ctx, of, at)
}

// isAtHome reports whether the home API server has a Service that the cache lacks. The
// cache may be outdated, and a Service that is deleted and created again gets another
// address.
func (s *Services) isAtHome(ctx context.Context, of types.NamespacedName) (bool, error) {
	if _, ok, _ := s.services.GetStore().GetByKey(of.String()); ok {
		return false, nil // it exists, and is not to be copied
	}
	list, err := s.opts.Home.CoreV1().Services(of.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.Name).String()})
	if err != nil {
		return false, fmt.Errorf("ask the home cluster whether Service %s is gone: %w", of, err)
	}
	return slices.ContainsFunc(list.Items, func(found corev1.Service) bool { return found.Name == of.Name && found.DeletionTimestamp == nil }), nil
}

// AnnotationReflect with the value "false" marks home Services that are not copied.
const AnnotationReflect = translate.Prefix + "reflect"

// service returns a home Service that is to be copied, or nil.
func (s *Services) service(of types.NamespacedName) *corev1.Service {
	obj, ok, err := s.services.GetStore().GetByKey(of.String())
	if err != nil || !ok || of == (types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}) {
		return nil // each cluster has a "kubernetes" of its own
	}
	service, ok := obj.(*corev1.Service)
	if !ok || service.DeletionTimestamp != nil || service.Annotations[AnnotationReflect] == "false" {
		return nil
	}
	return service
}
