package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// TaintUnreachable is the key of the taint, with the effect NoSchedule, of a node
	// that is kept Ready while its remote cluster cannot be reached.
	TaintUnreachable = "kubernetes.virtual-kubelet.io/remote-unreachable"
	// ConditionReachable is the type of the node condition with the time and reason of
	// an outage.
	ConditionReachable corev1.NodeConditionType = "RemoteReachable"
)

// errUnreachable is wrapped by the errors of a remote cluster that does not respond.
var errUnreachable = errors.New("the remote cluster cannot be reached")

// remoteError wraps the error of a request to the remote cluster. A cluster that
// refuses the credentials does respond.
func remoteError(what string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("the remote cluster refuses the node: %s: %w", what, err)
	}
	// Hide the class of the error: NotFound would be about a pod.
	return fmt.Errorf("%w: %s: %v", errUnreachable, what, err)
}

// outage keeps the node Ready for a while when the remote cluster cannot be reached,
// with a taint that keeps new pods away. Its zero value is no outage. It is safe for
// concurrent use.
type outage struct {
	mu     sync.Mutex
	since  time.Time // of the first ping that failed; zero if there is no outage
	taints []corev1.Taint
	notify func(*corev1.Node) // nil before the node runs
}

// setNotify sets the node's other taints, and the function to report an outage to.
func (o *outage) setNotify(taints []corev1.Taint, notify func(*corev1.Node)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taints, o.notify = slices.Clone(taints), notify
	if !o.since.IsZero() {
		o.notifyNode(errUnreachable)
	}
}

// observe returns the result of a ping to report. It suppresses the error of an outage
// for keep, and no other error.
func (o *outage) observe(err error, keep time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		if !o.since.IsZero() {
			o.since = time.Time{}
			o.notifyNode(nil)
		}
		return nil
	case !errors.Is(err, errUnreachable):
		return err
	case o.since.IsZero():
		o.since = time.Now()
		o.notifyNode(err)
	}
	if time.Since(o.since) < keep {
		return nil
	}
	return err
}

// notifyNode reports the taint and the condition. The caller holds o.mu.
func (o *outage) notifyNode(err error) {
	if o.notify == nil {
		return
	}
	now := metav1.Now()
	taints := append([]corev1.Taint{}, o.taints...) // not nil: an empty list removes the taint
	condition := corev1.NodeCondition{
		Type: ConditionReachable, Status: corev1.ConditionTrue, Reason: "RemoteAnswers", Message: "the remote cluster answers",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if err != nil {
		taints = append(taints, corev1.Taint{Key: TaintUnreachable, Effect: corev1.TaintEffectNoSchedule})
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, "RemoteUnreachable", err.Error()
	}
	o.notify(&corev1.Node{Spec: corev1.NodeSpec{Taints: taints}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{condition}}})
}
