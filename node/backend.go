package node

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// backend calls the provider: with copies, in spans, with panics as errors, and
// with the many ways in which providers say "I have no such pod" made one.
type backend struct {
	handler PodLifecycleHandler
	byUID   PodUIDLifecycleHandler // nil where the provider has none
	metrics *Metrics               // may be nil

	listing chan struct{} // holds a token while GetPods runs
	mu      sync.Mutex
	next    *listCall // that callers can still join
}

// listCall is one call of GetPods, for all who asked before it began.
type listCall struct {
	done chan struct{}
	pods []*corev1.Pod
	err  error
}

func newBackend(handler PodLifecycleHandler, metrics *Metrics) *backend {
	byUID, _ := handler.(PodUIDLifecycleHandler)
	return &backend{handler: handler, byUID: byUID, metrics: metrics, listing: make(chan struct{}, 1)}
}

// call runs one provider method.
func call(ctx context.Context, metrics *Metrics, method string, about subject, f func(context.Context) error) (err error) {
	ctx, span := startCallSpan(ctx, method, about)
	defer span.End()
	defer func() { span.SetStatus(err) }()
	begin := metrics.callBegins(method)
	defer func() { metrics.callEnded(method, begin, err) }()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("provider panicked in %s: %v", method, r)
			log.G(ctx).WithError(err).WithField("stack", string(debug.Stack())).Error("The provider panicked")
		}
	}()
	return f(ctx)
}

// create and update get pods that are copies already: their environment was
// resolved for this call.
func (b *backend) create(ctx context.Context, pod *corev1.Pod) error {
	return call(ctx, b.metrics, methodCreatePod, subjectOf(pod), func(ctx context.Context) error {
		return b.handler.CreatePod(ctx, pod)
	})
}

func (b *backend) update(ctx context.Context, pod *corev1.Pod) error {
	return call(ctx, b.metrics, methodUpdatePod, subjectOf(pod), func(ctx context.Context) error {
		return b.handler.UpdatePod(ctx, pod)
	})
}

// delete asks for the end of pod within its grace period, at once if that is zero. A
// pod that the provider does not know is no error: found says so.
func (b *backend) delete(ctx context.Context, pod *corev1.Pod, grace time.Duration) (found bool, err error) {
	pod = pod.DeepCopy()
	if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(grace)}
	}
	seconds := int64(grace / time.Second)
	pod.DeletionGracePeriodSeconds = &seconds
	err = call(ctx, b.metrics, methodDeletePod, subjectOf(pod), func(ctx context.Context) error {
		return b.handler.DeletePod(ctx, pod)
	})
	if errdefs.IsOnlyNotFound(err) {
		return false, nil
	}
	return true, err
}

// find returns the pod that the provider holds under a name, with its status,
// or nil if it holds none. An error means that it is not known which.
func (b *backend) find(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := call(ctx, b.metrics, methodGetPod, subject{namespace, name, uid}, func(ctx context.Context) (err error) {
		if b.byUID != nil {
			pod, err = b.byUID.GetPodByUID(ctx, namespace, name, uid)
		} else {
			pod, err = b.handler.GetPod(ctx, namespace, name)
		}
		return err
	})
	switch {
	case errdefs.IsOnlyNotFound(err):
		return nil, nil
	case err != nil:
		return b.findInList(ctx, namespace, name, uid, err)
	case pod == nil || isBlank(pod):
		return nil, nil
	}
	pod = pod.DeepCopy() // the provider may go on changing its own
	if pod.Status.Phase == "" {
		status, err := b.status(ctx, namespace, name, uid)
		if err != nil {
			return nil, err
		}
		if status != nil {
			pod.Status = *status.DeepCopy()
		}
	}
	return pod, nil
}

// findInList answers for a GetPod that failed with an error of no class: many
// providers have no other for a pod that they do not hold. Their list tells.
func (b *backend) findInList(ctx context.Context, namespace, name string, uid types.UID, cause error) (*corev1.Pod, error) {
	if errdefs.ClassOf(cause) != errdefs.UnknownClass || ctx.Err() != nil {
		return nil, cause
	}
	pods, err := b.list(ctx)
	if err != nil {
		return nil, cause
	}
	for _, pod := range pods {
		other := b.byUID != nil && pod.UID != "" && pod.UID != uid
		if pod.Namespace == namespace && pod.Name == name && !other {
			return nil, cause // it holds the pod, and could not read it
		}
	}
	return nil, nil
}

// status returns the status of a pod that the provider holds, or nil if it
// does not know the pod. It is the provider's: copy what is kept.
func (b *backend) status(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	var status *corev1.PodStatus
	err := call(ctx, b.metrics, methodGetPodStatus, subject{namespace, name, uid}, func(ctx context.Context) (err error) {
		if b.byUID != nil {
			status, err = b.byUID.GetPodStatusByUID(ctx, namespace, name, uid)
		} else {
			status, err = b.handler.GetPodStatus(ctx, namespace, name)
		}
		return err
	})
	if errdefs.IsOnlyNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return status, nil
}

// list returns what the provider holds, without the entries that name no pod.
// The pods belong to the provider: copy what is kept.
//
// A GetPods can be dear. Callers that ask while one runs share the next; they
// cannot share that one, since it may not tell what happened since it began.
func (b *backend) list(ctx context.Context) ([]*corev1.Pod, error) {
	b.mu.Lock()
	c := b.next
	first := c == nil
	if first {
		c = &listCall{done: make(chan struct{})}
		b.next = c
	}
	b.mu.Unlock()
	if !first {
		<-c.done
		return c.pods, c.err
	}

	b.listing <- struct{}{}
	b.mu.Lock()
	b.next = nil
	b.mu.Unlock()
	c.pods, c.err = b.getPods(ctx)
	<-b.listing
	close(c.done)
	return c.pods, c.err
}

func (b *backend) getPods(ctx context.Context) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	err := call(ctx, b.metrics, methodGetPods, subject{}, func(ctx context.Context) (err error) {
		pods, err = b.handler.GetPods(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	named := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		if pod != nil && pod.Name != "" && pod.Namespace != "" {
			named = append(named, pod)
		}
	}
	return named, nil
}

// isBlank tells whether a pod says nothing at all.
func isBlank(pod *corev1.Pod) bool {
	return pod.Name == "" && pod.UID == "" && pod.Status.Phase == "" && len(pod.Spec.Containers) == 0
}
