package claims

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// selectedNode is the annotation with the node for which the scheduler wants a volume.
const selectedNode = "volume.kubernetes.io/selected-node"

// key identifies a claim, or without a namespace a volume.
type key struct{ namespace, name string }

// Run provisions, expands and deletes volumes until ctx ends.
func (c *Claims) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.claims.RunWithContext(ctx) })
	running.Go(func() { c.volumes.RunWithContext(ctx) })
	running.Go(func() {
		for c.processNextItem(ctx) {
		}
	})
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
}

// Close stops Claims, whether or not they have run.
func (c *Claims) Close() { c.queue.ShutDown() }

// HasSynced reports whether the caches of home claims and volumes have synced.
func (c *Claims) HasSynced() bool { return c.claims.HasSynced() && c.volumes.HasSynced() }

func (c *Claims) processNextItem(ctx context.Context) bool {
	k, end := c.queue.Get()
	if end {
		return false
	}
	defer c.queue.Done(k)
	if c.opts.MayBegin != nil && !c.opts.MayBegin() {
		c.queue.AddAfter(k, mayBeginInterval)
		return true
	}
	timed, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if err := c.sync(timed, k); err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(err).WithFields(log.Fields{"namespace": k.namespace, "name": k.name}).
			Warn("Cannot sync a claim or its volume; retrying")
		c.queue.AddRateLimited(k)
		return true
	}
	c.queue.Forget(k)
	return true
}

func (c *Claims) sync(ctx context.Context, k key) error {
	if k.namespace == "" {
		if volume, ok := stored[*corev1.PersistentVolume](c.volumes, k.name); ok {
			return c.reclaim(ctx, volume)
		}
		return nil
	}
	claim, ok := stored[*corev1.PersistentVolumeClaim](c.claims, k.namespace+"/"+k.name)
	if !ok || claim.DeletionTimestamp != nil {
		return nil
	}
	var err error
	switch {
	case claim.Spec.VolumeName != "":
		return c.expand(ctx, claim)
	case claim.Annotations[selectedNode] == c.opts.Translate.Home.Node:
		err = c.provision(ctx, claim)
	case c.isImmediate(claim):
		err = c.provisionImmediate(ctx, claim)
	}
	if err != nil && ctx.Err() == nil {
		c.opts.RecordEvent(claim, corev1.EventTypeWarning, "ProvisioningFailed", err.Error())
	}
	if errdefs.IsPermanent(err) {
		return nil
	}
	return err
}

func stored[T any](informer cache.SharedIndexInformer, key string) (found T, ok bool) {
	obj, ok, err := informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return found, false
	}
	found, ok = obj.(T)
	return found, ok
}

// newInformers returns informers of the home claims, and of the volumes of this node.
func (c *Claims) newInformers() (claims, volumes cache.SharedIndexInformer) {
	home := c.opts.Home.CoreV1()
	claims = c.newInformer("claims", &corev1.PersistentVolumeClaim{}, listwatch.Of(home.PersistentVolumeClaims(metav1.NamespaceAll), nil))
	ours := c.opts.Translate.Home.NodeSelector()
	volumes = c.newInformer("volumes of remote claims", &corev1.PersistentVolume{}, listwatch.Of(home.PersistentVolumes(),
		func(options *metav1.ListOptions) { options.LabelSelector = ours }))
	_, _ = volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { // the error is explained below
		if volume, ok := obj.(*corev1.PersistentVolume); ok && volume.Spec.ClaimRef != nil {
			c.queue.Add(key{volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name}) // it may have to be expanded
		}
	}})
	return claims, volumes
}

func (c *Claims) newInformer(what string, of runtime.Object, lw *cache.ListWatch) cache.SharedIndexInformer {
	informer := listwatch.Informer(what, c.opts.Home, lw, of, cache.Indexers{})
	add := func(obj any) {
		if object, ok := obj.(metav1.Object); ok {
			c.queue.Add(key{object.GetNamespace(), object.GetName()})
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only if the informer has stopped
		AddFunc:    add,
		UpdateFunc: func(_, after any) { add(after) },
	})
	return informer
}
