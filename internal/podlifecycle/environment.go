package podlifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// environment resolves the environment of pods.
type environment struct {
	cfg       Config
	services  corev1listers.ServiceLister
	informers map[string]cache.SharedIndexInformer // of what pods may wait for, by kind
	changes   atomic.Uint64                        // of any object
}

// newEnvironment has the factories of the informers start them from now on.
func newEnvironment(cfg Config) *environment {
	e := &environment{cfg: cfg, services: cfg.ServiceInformer.Lister()}
	if _, all := cfg.Objects.(listedObjects); all {
		e.informers = map[string]cache.SharedIndexInformer{
			"ConfigMap": cfg.ConfigMapInformer.Informer(),
			"Secret":    cfg.SecretInformer.Informer(),
		}
	}
	return e
}

// readTimeout bounds the reads of what one pod names: an API server that does not
// answer must not hold the worker, which has other pods to stop. The pod is tried again.
const readTimeout = 10 * time.Second

// resolve fills in the environment of pod, in place. running is the form of it that
// the provider runs, or nil.
func (e *environment) resolve(ctx context.Context, pod, running *corev1.Pod) (_ []podenv.Problem, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, fmt.Errorf("the API server has not answered in %v", readTimeout))
	defer cancel()
	if trace.Enabled(ctx) { // for the requests that it may take to read what the pod names
		var span trace.Span
		ctx, span = trace.StartSpan(ctx, "resolveEnvironment")
		providercalls.Identify(span, pod)
		defer span.End()
		defer func() { span.SetStatus(err) }()
	}
	options := podenv.Options{HostIPs: e.cfg.HostIPs(), NodeAllocatable: e.cfg.NodeAllocatable()}
	if running != nil {
		options.Started = func(container string) bool { return hasContainer(running, container) }
	}
	return podenv.Resolve(pod, podenv.NewSource(ctx, e.cfg.Objects, e.services), options)
}

// hasContainer reports whether a pod has a container of that name, of any kind.
func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.InitContainers, named) || slices.ContainsFunc(pod.Spec.Containers, named) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// missingObjects are the objects for which a pod has to wait.
func missingObjects(problems []podenv.Problem) map[podenv.Object]struct{} {
	var missing map[podenv.Object]struct{}
	for _, problem := range problems {
		if !problem.Fatal {
			continue
		}
		if missing == nil {
			missing = map[podenv.Object]struct{}{}
		}
		missing[problem.Object] = struct{}{}
	}
	return missing
}

// wakeWaiting has the pods looked at that wait for an object which appears or
// changes.
func (pc *Controller) wakeWaiting(kind, namespace, name string) {
	pc.env.changes.Add(1)
	changed := podenv.Object{Kind: kind, Namespace: namespace, Name: name}
	pc.records.each(func(r *podRecord) {
		r.mu.Lock()
		_, waits := r.waitsFor[changed]
		r.mu.Unlock()
		if waits {
			pc.syncs.Add(r.key())
		}
	})
}

// wakeBy is wakeWaiting as an informer calls it.
func (pc *Controller) wakeBy(kind string) cache.ResourceEventHandler {
	wake := func(obj any) {
		if object, err := meta.Accessor(obj); err == nil {
			pc.wakeWaiting(kind, object.GetNamespace(), object.GetName())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    wake,
		UpdateFunc: func(_, after any) { wake(after) },
	}
}
