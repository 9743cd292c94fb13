// Package providercalls calls the methods of a provider, and keeps account of the calls:
// spans, metrics, and which of them have not returned yet.
package providercalls

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// Pod is the pod that a call is about; the zero value is none.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// PodOf returns a pod as what a call is about.
func PodOf(pod *corev1.Pod) Pod { return Pod{pod.Namespace, pod.Name, pod.UID} }

// Do calls one method of the provider, in a span, with panics as errors.
func Do(ctx context.Context, metrics *Metrics, method string, about Pod, f func(context.Context) error) (err error) {
	ctx, span := startSpan(ctx, method, about)
	defer span.End()
	defer func() { span.SetStatus(err) }()
	begin := metrics.Begins(method)
	defer func() { metrics.Ended(method, begin, err) }()
	defer func() {
		if r := recover(); r != nil {
			err = Panicked(ctx, method, r)
		}
	}()
	return f(ctx)
}

// The attributes of spans, by OpenTelemetry's conventions.
const (
	AttributeNamespace = "k8s.namespace.name"
	AttributePod       = "k8s.pod.name"
	AttributeUID       = "k8s.pod.uid"
	AttributeNode      = "k8s.node.name"
)

// startSpan starts a span for a method of the provider. The logger of ctx
// knows which pod it is about.
func startSpan(ctx context.Context, method string, about Pod) (context.Context, trace.Span) {
	ctx, span := trace.StartSpan(ctx, method)
	if s, ok := span.(trace.AttributeSetter); ok && about != (Pod{}) {
		s.SetAttributes(log.Fields{AttributeNamespace: about.Namespace, AttributePod: about.Name, AttributeUID: string(about.UID)})
	}
	return ctx, span
}

// Identify gives a span the attributes of the pod that it is about.
func Identify(span trace.Span, pod *corev1.Pod) {
	if s, ok := span.(trace.AttributeSetter); ok {
		s.SetAttributes(log.Fields{AttributeNamespace: pod.Namespace, AttributePod: pod.Name,
			AttributeUID: string(pod.UID), AttributeNode: pod.Spec.NodeName})
	}
}

// Call is a call of the provider that has not returned yet.
type Call struct {
	// Method is the name of the provider's method.
	Method string
	// Namespace, Name and UID are those of the pod that the call is about; empty for
	// GetPods.
	Namespace, Name string
	UID             types.UID
	// Since is when the call began.
	Since time.Time
}

func (c Call) String() string {
	if c.Name == "" {
		return fmt.Sprintf("%s has not returned since %s", c.Method, c.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s of pod %s/%s has not returned since %s", c.Method, c.Namespace, c.Name, c.Since.UTC().Format(time.RFC3339))
}

// Log has the calls of a provider that have not returned yet. They are few at any time, and
// of most nodes none: a map that is empty keeps room for eight.
type Log struct {
	mu    sync.Mutex
	last  uint64
	calls []begunCall
}

type begunCall struct {
	id uint64
	Call
}

// Begin records a call. End has to follow, with what it returns.
func (l *Log) Begin(method string, about Pod) (id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	l.calls = append(l.calls, begunCall{l.last, Call{method, about.Namespace, about.Name, about.UID, time.Now()}})
	return l.last
}

func (l *Log) End(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = slices.DeleteFunc(l.calls, func(c begunCall) bool { return c.id == id })
}

func (l *Log) List() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := make([]Call, 0, len(l.calls))
	for _, c := range l.calls {
		calls = append(calls, c.Call)
	}
	return calls
}
