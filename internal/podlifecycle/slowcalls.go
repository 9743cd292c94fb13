package podlifecycle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
)

const (
	// slowQuestion is how long a call that only reads may take before it counts as
	// slow: what a kubelet gives its container runtime to list the pods.
	slowQuestion = 3 * time.Minute
	// slowRequest is how long any other call may take. Backends that buy machines
	// need some minutes.
	slowRequest = 10 * time.Minute
)

// ConditionProviderCallsSlow is the type of the Node condition that is True while calls
// of the provider take too long, and names the oldest.
const ConditionProviderCallsSlow corev1.NodeConditionType = "ProviderCallsSlow"

// slow reports whether a call takes too long.
func slow(c providercalls.Call, now time.Time) bool {
	limit := slowRequest
	switch c.Method {
	case providercalls.GetPod, providercalls.GetPodStatus, providercalls.GetPods:
		limit = slowQuestion
	}
	return now.Sub(c.Since) >= limit
}

// ProviderCall is a call of the provider that has not returned yet.
type ProviderCall = providercalls.Call

// NodeConditions returns what the controller observes of the provider's health.
func (pc *Controller) NodeConditions() []corev1.NodeCondition {
	return []corev1.NodeCondition{slowCallsCondition(pc.SlowCalls()), pc.guard.condition()}
}

// SlowCalls returns the calls of the provider that take too long, the oldest first:
// three minutes for those that only read, ten for the others. What is done about them
// node.PodController describes.
func (pc *Controller) SlowCalls() []providercalls.Call {
	now := time.Now()
	calls := pc.calls.calls.List()
	calls = slices.DeleteFunc(calls, func(c providercalls.Call) bool { return !slow(c, now) })
	slices.SortFunc(calls, func(a, b providercalls.Call) int { return a.Since.Compare(b.Since) })
	return calls
}

// slowCallsCondition returns the node condition about the calls that take too long.
func slowCallsCondition(slow []providercalls.Call) corev1.NodeCondition {
	condition := corev1.NodeCondition{Type: ConditionProviderCallsSlow, Status: corev1.ConditionFalse,
		Reason: "ProviderAnswers", Message: "no call of the provider takes too long"}
	if len(slow) > 0 {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, "ProviderHangs", slow[0].String()
		if more := len(slow) - 1; more > 0 {
			condition.Message += fmt.Sprintf(", and %d more calls", more)
		}
	}
	return condition
}
