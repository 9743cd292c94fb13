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
	// ConditionReachable is the type of the node's condition that says since when.
	ConditionReachable corev1.NodeConditionType = "RemoteReachable"
)

// errAway is in the errors of a remote cluster that does not answer.
var errAway = errors.New("the remote cluster cannot be reached")

// remoteError is the error of a request to the remote cluster. One that refuses the
// caller has answered.
func remoteError(what string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("the remote cluster refuses the node: %s: %w", what, err)
	}
	// Without its class: what is not found is no pod.
	return fmt.Errorf("%w: %s: %v", errAway, what, err)
}

// outage keeps the node Ready for a while when the remote cluster cannot be reached, with
// a taint that keeps new pods away. Its zero value is no outage. It is safe for concurrent
// use.
type outage struct {
	mu     sync.Mutex
	since  time.Time // of the first ping that failed; zero while none did
	taints []corev1.Taint
	notify func(*corev1.Node) // nil before the node runs
}

// attach gives it the node's other taints, and where to say that there is an outage.
func (o *outage) attach(taints []corev1.Taint, notify func(*corev1.Node)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taints, o.notify = slices.Clone(taints), notify
	if !o.since.IsZero() {
		o.tell(errAway)
	}
}

// observe takes the result of a ping, and returns that which the node is to have. An
// outage is forgiven for as long as keep; any other error is not.
func (o *outage) observe(err error, keep time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		if !o.since.IsZero() {
			o.since = time.Time{}
			o.tell(nil)
		}
		return nil
	case !errors.Is(err, errAway):
		return err
	case o.since.IsZero():
		o.since = time.Now()
		o.tell(err)
	}
	if time.Since(o.since) < keep {
		return nil
	}
	return err
}

// tell notifies of the taint and the condition. o.mu is held.
func (o *outage) tell(err error) {
	if o.notify == nil {
		return
	}
	now := metav1.Now()
	taints := append([]corev1.Taint{}, o.taints...) // none takes it back
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
