package podgroup

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// The back-off of annotations that cannot be written.
	firstAnnotationRetry = time.Second
	lastAnnotationRetry  = 5 * time.Minute
)

// annotator writes the annotations of units (Unit.Annotations), and their place, to their
// pods: one pod at a time, with retries. It starts with the first one.
type annotator struct {
	p     *Provider
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	start sync.Once
	place map[string]string // what all pods have

	mu     sync.Mutex
	wanted map[cache.ObjectName]annotations // that pods do not have yet
}

// annotations are those of the unit of a pod.
type annotations struct {
	uid    types.UID
	values map[string]string
}

func (a annotations) equal(b annotations) bool {
	return a.uid == b.uid && maps.Equal(a.values, b.values)
}

// areOn reports whether a pod has them.
func (a annotations) areOn(pod *corev1.Pod) bool {
	for key, value := range a.values {
		if got, ok := pod.Annotations[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func (a *annotator) init(p *Provider) {
	a.p, a.wanted = p, map[cache.ObjectName]annotations{}
	if p.opts.Place != "" {
		a.place = map[string]string{AnnotationPlace: p.opts.Place}
	}
	a.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstAnnotationRetry, lastAnnotationRetry))
}

// valuesOf returns the annotations of the pod of a unit.
func (a *annotator) valuesOf(u *Unit) map[string]string {
	if len(a.place) == 0 {
		return u.Annotations
	}
	if len(u.Annotations) == 0 {
		return a.place
	}
	values := maps.Clone(u.Annotations)
	maps.Copy(values, a.place)
	return values
}

// want queues the pods that lack annotations of their units.
func (a *annotator) want(list ...Unit) {
	for i := range list {
		u := &list[i]
		wanted := annotations{u.Owner.UID, a.valuesOf(u)}
		if len(wanted.values) == 0 {
			continue
		}
		pod, err := a.p.init.Pods.Pods(u.Owner.Namespace).Get(u.Owner.Name)
		if err != nil || pod.UID != u.Owner.UID || wanted.areOn(pod) {
			continue
		}
		name := cache.MetaObjectToName(pod)
		a.mu.Lock()
		known := a.wanted[name]
		a.wanted[name] = wanted
		a.mu.Unlock()
		if !known.equal(wanted) { // else it is queued, or waits for its next try
			a.queue.Add(name)
		}
		a.start.Do(func() {
			ctx, end, err := a.p.begin(a.p.ctx)
			if err != nil {
				return // it is closed
			}
			go func() { // ends with the queue
				defer end()
				for a.next(ctx) {
				}
			}()
		})
	}
}

// next writes the annotations of one pod. It returns false once the provider is closed.
func (a *annotator) next(ctx context.Context) bool {
	name, closed := a.queue.Get()
	if closed {
		return false
	}
	defer a.queue.Done(name)
	a.mu.Lock()
	wanted := a.wanted[name]
	a.mu.Unlock()
	err := a.write(ctx, name, wanted)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // these are of a pod that is gone, or is another one
		if ctx.Err() == nil {
			log.G(ctx).WithFields(log.Fields{"namespace": name.Namespace, "pod": name.Name, "uid": string(wanted.uid)}).WithError(err).
				Warn("Cannot annotate a pod with what its unit says")
			a.queue.AddRateLimited(name)
		}
		return true
	}
	a.queue.Forget(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wanted[name].equal(wanted) { // else it is queued again
		delete(a.wanted, name)
	}
	return true
}

// write patches the pod's status, since a node may not patch the pod. The UID makes it a
// conflict if the pod is another one by now.
func (a *annotator) write(ctx context.Context, name cache.ObjectName, wanted annotations) error {
	pod, err := a.p.init.Pods.Pods(name.Namespace).Get(name.Name)
	if err != nil || wanted.areOn(pod) || a.p.init.MayBegin != nil && !a.p.init.MayBegin() {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": wanted.uid, "annotations": wanted.values}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = a.p.init.Client.CoreV1().Pods(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
