package podlifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
)

// backend calls the provider: with copies, in spans, with panics as errors, and
// with the many ways in which providers say "I have no such pod" made one.
type backend struct {
	handler Provider
	byUID   UIDProvider            // nil where the provider has none
	metrics *providercalls.Metrics // may be nil

	calls providercalls.Log

	listing chan struct{} // holds a token while GetPods runs
	lists   sync.WaitGroup
	mu      sync.Mutex
	next    *listCall // that callers can still join
	listed  bool      // GetPods has been called
}

// listCall is one call of GetPods, for all who asked before it began.
type listCall struct {
	cancel  context.CancelCauseFunc
	waiting int // callers; backend.mu guards it
	done    chan struct{}
	pods    []*corev1.Pod
	err     error
}

func newBackend(handler Provider, metrics *providercalls.Metrics) *backend {
	byUID, _ := handler.(UIDProvider)
	return &backend{handler: handler, byUID: byUID, metrics: metrics, listing: make(chan struct{}, 1)}
}

// call runs one provider method about a pod, or all.
func (b *backend) call(ctx context.Context, method string, about providercalls.Pod, f func(context.Context) error) error {
	id := b.calls.Begin(method, about)
	defer b.calls.End(id)
	return providercalls.Do(ctx, b.metrics, method, about, f)
}

// limit bounds a call that does not take a pod on, so that one that hangs is tried again.
func limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errdefs.AsUnavailable(unanswered(d)))
}

// endAfter is limit for a context that goes on after the call. returned is to be called then.
func endAfter(ctx *providercalls.Lasting, d time.Duration) (returned func() bool) {
	return time.AfterFunc(d, func() { ctx.End(errdefs.AsUnavailable(unanswered(d))) }).Stop
}

// unanswered is that the provider has not answered for so long. It is made for each call, and its text for those that
// hang.
type unanswered time.Duration

func (d unanswered) Error() string {
	return "the provider has not answered in " + time.Duration(d).String()
}

func (b *backend) create(ctx context.Context, pod *corev1.Pod) error {
	return b.call(ctx, providercalls.CreatePod, providercalls.PodOf(pod), func(ctx context.Context) error {
		return b.handler.CreatePod(ctx, pod)
	})
}

func (b *backend) update(ctx context.Context, pod *corev1.Pod) error {
	return b.call(ctx, providercalls.UpdatePod, providercalls.PodOf(pod), func(ctx context.Context) error {
		return b.handler.UpdatePod(ctx, pod)
	})
}

// deletePod asks for the end of pod within its grace period, at once if that is zero. A
// pod that the provider does not know is no error: found says so.
func (b *backend) deletePod(ctx context.Context, pod *corev1.Pod, grace time.Duration) (found bool, err error) {
	pod = pod.DeepCopy()
	if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(grace)}
	}
	seconds := int64(grace / time.Second)
	pod.DeletionGracePeriodSeconds = &seconds
	call := providercalls.NewLasting(ctx, ctx)
	defer endAfter(call, grace+slowRequest)() // some providers return when it has ended
	err = b.call(call, providercalls.DeletePod, providercalls.PodOf(pod), func(ctx context.Context) error {
		return b.handler.DeletePod(ctx, pod)
	})
	if errdefs.IsOnlyNotFound(err) {
		return false, nil
	}
	return true, err
}

// findPod returns the pod that the provider holds under the name, or UID, of one, with
// its status, or nil if it holds none. An error means that it is not known which. coming is whether the pod was created
// and not shown yet: then an error of no class is one, though lists lack the pod.
func (b *backend) findPod(ctx context.Context, wanted *corev1.Pod, coming bool) (*corev1.Pod, error) {
	var pod *corev1.Pod
	limited, cancel := limit(ctx, slowQuestion)
	defer cancel()
	err := b.call(limited, providercalls.GetPod, providercalls.PodOf(wanted), func(ctx context.Context) (err error) {
		if b.byUID != nil {
			pod, err = b.byUID.GetPodByUID(ctx, wanted.Namespace, wanted.Name, wanted.UID)
		} else {
			pod, err = b.handler.GetPod(ctx, wanted.Namespace, wanted.Name)
		}
		return err
	})
	switch {
	case errdefs.IsOnlyNotFound(err):
		return nil, nil
	case err != nil && (limited.Err() != nil || coming):
		return nil, err
	case err != nil:
		return b.findInList(ctx, wanted, err)
	case pod == nil || isBlank(pod):
		return nil, nil
	}
	pod = pod.DeepCopy() // the provider may go on changing its own
	if pod.Status.Phase == "" {
		status, err := b.status(ctx, wanted)
		if err != nil {
			return nil, err
		}
		if status != nil {
			pod.Status = *status.DeepCopy()
		}
	}
	return pod, nil
}

// listPatience is how long a worker waits for a list that may hang, to learn of one
// pod.
const listPatience = 10 * time.Second

// findInList answers for a GetPod that failed with an error of no class: many
// providers have no other for a pod that they do not hold. Their list shows it.
func (b *backend) findInList(ctx context.Context, wanted *corev1.Pod, cause error) (*corev1.Pod, error) {
	if errdefs.ClassOf(cause) != errdefs.UnknownClass || ctx.Err() != nil {
		return nil, cause
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	pods, err := b.list(ctx)
	if err != nil {
		return nil, cause
	}
	for _, pod := range pods {
		other := b.byUID != nil && pod.UID != "" && pod.UID != wanted.UID
		if nameOf(pod) == nameOf(wanted) && !other {
			return nil, cause // it holds the pod, and could not read it
		}
	}
	return nil, nil
}

func (b *backend) status(ctx context.Context, pod *corev1.Pod) (*corev1.PodStatus, error) {
	var status *corev1.PodStatus
	ctx, cancel := limit(ctx, slowQuestion)
	defer cancel()
	err := b.call(ctx, providercalls.GetPodStatus, providercalls.PodOf(pod), func(ctx context.Context) (err error) {
		if b.byUID != nil {
			status, err = b.byUID.GetPodStatusByUID(ctx, pod.Namespace, pod.Name, pod.UID)
		} else {
			status, err = b.handler.GetPodStatus(ctx, pod.Namespace, pod.Name)
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

// list returns what the provider holds. A GetPods can be expensive. Callers that ask while one runs share the next; they
// cannot share that one, since it may not tell what happened since it began. No caller
// waits longer than its context lasts; the call's own context ends when nobody waits
// for it any more. That of the first call, which the original library made once at its start, goes on until the
// controller ends: from within it some providers begin what they do for as long as they run.
func (b *backend) list(ctx context.Context) ([]*corev1.Pod, error) {
	b.mu.Lock()
	c := b.next
	if c == nil {
		parent, first := ctx, !b.listed
		if b.listed = true; !first {
			parent = context.WithoutCancel(ctx) // it may have waiters that outlast this one
		}
		call := providercalls.NewLasting(ctx, parent)
		if first { // also for those that keep its channel alone
			context.AfterFunc(parent, func() { call.End(context.Cause(parent)) })
		}
		c = &listCall{cancel: call.End, done: make(chan struct{})}
		b.lists.Go(func() {
			b.run(call, c)
			if !first {
				call.End(nil)
			}
		})
		b.next = c
	}
	c.waiting++
	b.mu.Unlock()

	select {
	case <-c.done:
		return c.pods, c.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		c.cancel(context.Cause(ctx))
		b.close(c)
	}
	return nil, fmt.Errorf("stopped waiting for the list of the provider's pods: %w", context.Cause(ctx))
}

// run makes a call of GetPods, once the one before it has returned.
func (b *backend) run(ctx *providercalls.Lasting, c *listCall) {
	defer close(c.done)
	select {
	case b.listing <- struct{}{}:
	case <-ctx.Done(): // nobody waits
		c.err = context.Cause(ctx)
		return
	}
	b.mu.Lock()
	b.close(c)
	b.mu.Unlock()
	defer func() { <-b.listing }()
	c.pods, c.err = b.getPods(ctx)
}

// close keeps further callers from joining a call. b.mu is held.
func (b *backend) close(c *listCall) {
	if b.next == c {
		b.next = nil
	}
}

func (b *backend) getPods(ctx *providercalls.Lasting) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	defer endAfter(ctx, slowRequest)()
	err := b.call(ctx, providercalls.GetPods, providercalls.Pod{}, func(ctx context.Context) (err error) {
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

// isBlank reports whether a pod says nothing at all.
func isBlank(pod *corev1.Pod) bool {
	return pod.Name == "" && pod.UID == "" && pod.Status.Phase == "" && len(pod.Spec.Containers) == 0
}
