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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// workers is how many Services are written at the same time.
const workers = 2

// byService is the index of EndpointSlices by the Service that they are of.
const byService = "service"

const (
	// nodeInterval is how often to look whether this process has the node again.
	nodeInterval = 5 * time.Second
	// syncTimeout is how long one attempt may take: a call that hangs holds others.
	syncTimeout = time.Minute
)

// Options say where Services are, and where they are reflected.
type Options struct {
	// Translate has the remote namespaces, and addresses.
	Translate *translate.Options
	// Home and Remote are the clusters.
	Home, Remote kubernetes.Interface
	// MayBegin reports whether this process may write and delete Services of its own
	// accord: another one may have the node. Nil means always.
	MayBegin func() bool
	// Used tells whether pods of the node are in a namespace at home. Required.
	Used func(namespace string) bool
	// Tell records an event on a Service at home. It must not block. Required.
	Tell func(service *corev1.Service, err error)
}

// Services reflects them. Make it with New. It is safe for concurrent use.
type Services struct {
	opts     Options
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	services cache.SharedIndexInformer
	slices   cache.SharedIndexInformer

	mu     sync.Mutex
	looked map[string]struct{} // namespaces that are used
}

// New makes Services, which do nothing yet: see Run.
func New(opts Options) *Services {
	s := &Services{
		opts:   opts,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, 2*time.Minute)),
		looked: map[string]struct{}{},
	}
	factory := informers.NewSharedInformerFactoryWithOptions(opts.Home, 0, informers.WithTransform(withoutManagedFields))
	s.services = factory.Core().V1().Services().Informer()
	s.slices = factory.Discovery().V1().EndpointSlices().Informer()
	// These fail only once the informers run, or have ended.
	_ = s.services.AddIndexers(cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_ = s.slices.AddIndexers(cache.Indexers{byService: func(obj any) ([]string, error) {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			return []string{serviceOf(slice).String()}, nil
		}
		return nil, nil
	}})
	s.follow(s.services, func(object metav1.Object) types.NamespacedName {
		return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	})
	s.follow(s.slices, serviceOf)
	return s
}

// serviceOf names the Service that an EndpointSlice is of.
func serviceOf(slice metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.GetNamespace(), Name: slice.GetLabels()[discoveryv1.LabelServiceName]}
}

// follow has a Service looked at with each change of an object.
func (s *Services) follow(informer cache.SharedIndexInformer, of func(metav1.Object) types.NamespacedName) {
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

func withoutManagedFields(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// Run reflects Services until ctx ends.
func (s *Services) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.services.RunWithContext(ctx) })
	running.Go(func() { s.slices.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), s.services.HasSynced, s.slices.HasSynced) {
		for range workers {
			running.Go(func() {
				for s.next(ctx) {
				}
			})
		}
	}
	<-ctx.Done()
	s.queue.ShutDown()
	running.Wait()
}

// Close ends Services that may never have run.
func (s *Services) Close() { s.queue.ShutDown() }

// HasSynced tells whether the Services at home, and their EndpointSlices, are known.
func (s *Services) HasSynced() bool { return s.services.HasSynced() && s.slices.HasSynced() }

func (s *Services) next(ctx context.Context) bool {
	of, end := s.queue.Get()
	if end {
		return false
	}
	defer s.queue.Done(of)
	if s.opts.MayBegin != nil && !s.opts.MayBegin() {
		s.queue.AddAfter(of, nodeInterval)
		return true
	}
	timed, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	err := s.sync(timed, of)
	switch {
	case err == nil || ctx.Err() != nil:
		s.queue.Forget(of)
	case errors.As(err, new(translate.NameConflict)):
		s.queue.Forget(of) // Sweep looks again
		if service := s.service(of); service != nil {
			s.opts.Tell(service, err)
		}
	default:
		log.G(ctx).WithError(err).WithField("service", of).Warn("Cannot reflect a Service into the remote cluster; it is tried again")
		s.queue.AddRateLimited(of)
	}
	return true
}

// Look has the Services of a namespace looked at, to which a pod has come: the
// first, or else nothing is done.
func (s *Services) Look(namespace string) {
	s.mu.Lock()
	_, looked := s.looked[namespace]
	s.looked[namespace] = struct{}{}
	s.mu.Unlock()
	if looked {
		return
	}
	found, err := s.services.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return // of an index that is not there
	}
	for _, obj := range found {
		if service, ok := obj.(*corev1.Service); ok {
			s.queue.Add(types.NamespacedName{Namespace: namespace, Name: service.Name})
		}
	}
}

// unused tells whether a namespace has no pods. The first that comes has all of it
// looked at then.
func (s *Services) unused(namespace string) bool {
	if s.opts.Used(namespace) {
		return false
	}
	s.mu.Lock()
	delete(s.looked, namespace)
	s.mu.Unlock()
	return !s.opts.Used(namespace) // a pod may have come that Look took for another one
}

// sync brings one Service to where it should be.
func (s *Services) sync(ctx context.Context, of types.NamespacedName) error {
	remote, err := s.opts.Translate.Namespaces.Remote(of.Namespace)
	if err != nil {
		return nil // no pod can be in it
	}
	at := types.NamespacedName{Namespace: remote, Name: of.Name}
	service := s.service(of)
	switch {
	case service == nil:
		if there, err := s.isAtHome(ctx, of); err != nil || there {
			return err
		}
		return s.remove(ctx, of, at)
	case s.unused(of.Namespace):
		return nil // it may be used again soon: see Sweep
	}
	if ours, err := s.apply(ctx, service, at); err != nil || !ours {
		return err
	}
	return s.applySlices(ctx, of, at)
}

// isAtHome reports whether the API server at home has a Service that a list of it lacks,
// which may be of an older state: the remote one would get another address.
func (s *Services) isAtHome(ctx context.Context, of types.NamespacedName) (bool, error) {
	if _, ok, _ := s.services.GetStore().GetByKey(of.String()); ok {
		return false, nil // it is known, and not to be reflected
	}
	list, err := s.opts.Home.CoreV1().Services(of.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.Name).String()})
	if err != nil {
		return false, fmt.Errorf("ask the home cluster whether Service %s is gone: %w", of, err)
	}
	return slices.ContainsFunc(list.Items, func(found corev1.Service) bool { return found.Name == of.Name && found.DeletionTimestamp == nil }), nil
}

// AnnotationReflect, with the value "false", is for Services that are to stay at home.
const AnnotationReflect = translate.Prefix + "reflect"

// service returns a Service at home that is to be reflected, or nil.
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
