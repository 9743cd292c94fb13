package node

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// ProviderCall is a call of the provider that has not returned yet.
type ProviderCall struct {
	// Method is the name of the provider's method.
	Method string
	// Namespace, Name and UID are those of the pod that the call is about; empty for
	// GetPods.
	Namespace, Name string
	UID             types.UID
	// Since is when the call began.
	Since time.Time
}

func (c ProviderCall) String() string {
	if c.Name == "" {
		return fmt.Sprintf("%s has not returned since %s", c.Method, c.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s of pod %s/%s has not returned since %s", c.Method, c.Namespace, c.Name, c.Since.UTC().Format(time.RFC3339))
}

func (c ProviderCall) slow(now time.Time) bool {
	limit := slowRequest
	switch c.Method {
	case methodGetPod, methodGetPodStatus, methodGetPods:
		limit = slowQuestion
	}
	return now.Sub(c.Since) >= limit
}

// SlowCalls returns the calls of the provider that take too long, the oldest first:
// three minutes for those that only read, ten for the others. Nothing is done about
// them: a call is cancelled only when its pod is deleted or replaced.
func (pc *PodController) SlowCalls() []ProviderCall {
	now := time.Now()
	calls := pc.backend.calls.list()
	calls = slices.DeleteFunc(calls, func(c ProviderCall) bool { return !c.slow(now) })
	slices.SortFunc(calls, func(a, b ProviderCall) int { return a.Since.Compare(b.Since) })
	return calls
}

// slowCallsCondition returns the node condition about the calls that take too long.
func slowCallsCondition(slow []ProviderCall) corev1.NodeCondition {
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

// callLog has the calls of a provider that have not returned yet.
type callLog struct {
	mu    sync.Mutex
	last  uint64
	calls map[uint64]ProviderCall
}

// begin records a call. end has to follow, with what it returns.
func (l *callLog) begin(method string, about subject) (id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[uint64]ProviderCall{}
	}
	l.last++
	l.calls[l.last] = ProviderCall{method, about.namespace, about.name, about.uid, time.Now()}
	return l.last
}

func (l *callLog) end(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, id)
}

func (l *callLog) list() []ProviderCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := make([]ProviderCall, 0, len(l.calls))
	for _, c := range l.calls {
		calls = append(calls, c)
	}
	return calls
}
