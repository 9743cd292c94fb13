package eci

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// refresher updates the volumes of container groups when an object that the pod refers
// to has changed, and when a token has to be renewed: one group at a time, with
// retries. Its queue is the only schedule.
type refresher struct {
	queue          workqueue.TypedRateLimitingInterface[cache.ObjectName]
	unsubscribe    func()
	worker         sync.WaitGroup
	pods           podVolumesMap
	throttledUntil time.Time // nothing is sent before that time; used by the worker only
}

const (
	// The back-off of retries.
	firstRefreshRetry = 5 * time.Second
	lastRefreshRetry  = 5 * time.Minute
	// rereadInterval is how often the objects in volumes are read again: those that
	// nobody reads for five minutes are no longer watched.
	rereadInterval = 2 * time.Minute
)

// startRefreshing starts the worker and subscribes to objects, until stop is called.
func (p *Provider) startRefreshing() (stop func()) {
	r := &p.refresher
	r.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRefreshRetry, lastRefreshRetry))
	ctx, cancel := context.WithCancel(context.Background())
	r.worker.Go(func() {
		for p.refreshNext(ctx) {
		}
	})
	r.unsubscribe = p.node.Objects.Subscribe(p.objectChanged)
	return func() {
		r.unsubscribe()
		cancel()
		r.queue.ShutDown()
		r.worker.Wait()
	}
}

// objectChanged queues the pods that have an object in a volume.
func (p *Provider) objectChanged(kind, namespace, name string) {
	pods, err := p.node.Pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return // the lister of a cache returns no error
	}
	for _, pod := range pods {
		if hasInVolume(pod, func(k, n string) bool { return k == kind && n == name }) {
			p.refresher.queue.Add(cache.MetaObjectToName(pod))
		}
	}
}

// adopt queues the pods whose groups an earlier process created, so that their tokens
// are renewed. It drops the state of pods that have neither a group in the listing nor
// a pod in the cache.
func (p *Provider) adopt(listed []group) {
	keep := map[types.UID]bool{}
	for i := range listed {
		g := &listed[i]
		keep[uidOf(g)] = true
		if usesVolumes(g.Status) && !p.refresher.pods.isScheduled(uidOf(g)) {
			p.refresher.queue.Add(cache.ObjectName{Namespace: tagOf(g, TagNamespace), Name: tagOf(g, TagPodName)})
		}
	}
	pods, err := p.node.Pods.List(labels.Everything())
	if err != nil {
		return // the lister of a cache returns no error
	}
	for _, pod := range pods {
		keep[pod.UID] = true
	}
	for _, uid := range p.refresher.pods.prune(keep) {
		p.sources.Tokens.Forget(uid)
	}
}

// refreshNext processes one pod of the queue. It returns false once the provider is
// closed.
func (p *Provider) refreshNext(ctx context.Context) bool {
	queue := p.refresher.queue
	name, closed := queue.Get()
	if closed {
		return false
	}
	defer queue.Done(name)
	if quiet := time.Until(p.refresher.throttledUntil); quiet > 0 {
		queue.AddAfter(name, quiet)
		return true
	}
	pod, err := p.node.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		queue.Forget(name)
		return true
	}
	var again time.Time
	if err == nil {
		ctx = log.WithLogger(ctx, log.G(ctx).WithFields(log.Fields{"namespace": pod.Namespace, "pod": pod.Name, "uid": string(pod.UID)}))
		again, err = p.refresh(ctx, pod)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.retry(ctx, name, pod, err, again)
	default:
		queue.Forget(name)
		p.refresher.pods.recordUpToDate(pod.UID)
		p.schedule(name, again)
	}
	return true
}

// schedule queues a pod for a time, unless that is zero.
func (p *Provider) schedule(name cache.ObjectName, at time.Time) {
	if !at.IsZero() {
		p.refresher.queue.AddAfter(name, max(time.Until(at), time.Second))
	}
}

// retry queues a pod again after an error. A permanent error is retried only if a token
// is due, or once something changes.
func (p *Provider) retry(ctx context.Context, name cache.ObjectName, pod *corev1.Pod, err error, due time.Time) {
	queue := p.refresher.queue
	// A group that does not run yet, and throttling, pass by themselves.
	if pod != nil && !errdefs.IsConflict(err) && !isThrottled(err) && p.refresher.pods.recordStale(pod.UID) {
		p.reportStaleVolumes(ctx, pod, err)
	}
	delay, named := errdefs.RetryAfter(err)
	if isThrottled(err) { // it is about the account, not the pod
		p.refresher.throttledUntil = time.Now().Add(delay)
	}
	switch {
	case errdefs.IsPermanent(err):
		queue.Forget(name)
		if !due.IsZero() {
			queue.AddAfter(name, lastRefreshRetry)
		}
	case named:
		queue.AddAfter(name, delay)
	default:
		queue.AddRateLimited(name)
		p.schedule(name, due) // the queue takes the earlier one
	}
}

// reportStaleVolumes logs and records that a pod's volumes keep their previous
// contents.
func (p *Provider) reportStaleVolumes(ctx context.Context, pod *corev1.Pod, err error) {
	log.G(ctx).WithError(err).Warn("Cannot update the volumes of a pod")
	p.events.recordStaleVolumes(pod, fmt.Sprintf("The volumes keep their previous contents: %s", err))
}

// hasInVolume reports whether a volume of the pod has the contents of an object that
// matches.
func hasInVolume(pod *corev1.Pod, is func(kind, name string) bool) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.ConfigMap != nil && is("ConfigMap", v.ConfigMap.Name),
			v.Secret != nil && is("Secret", v.Secret.SecretName):
			return true
		case v.Projected == nil:
			continue
		}
		for _, from := range v.Projected.Sources {
			if from.ConfigMap != nil && is("ConfigMap", from.ConfigMap.Name) || from.Secret != nil && is("Secret", from.Secret.Name) {
				return true
			}
		}
	}
	return false
}
