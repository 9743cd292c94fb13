// Package runtimemetrics counts and times the calls of a container runtime, under
// the names that a kubelet has for them, and makes an error of a call that panics or has no
// answer. What the numbers mean is left to docs/observability.md, and what is called to the engine.
package runtimemetrics

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// operations are the metrics of all calls.
type operations struct {
	total    *prometheus.CounterVec
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// Measured returns the services with each call counted, registered with r. Those
// of several engines that are given the same r are counted together. A nil r
// means that the numbers are not shown. A panic of a call is its error, and so is an answer
// that is nil.
func Measured(r prometheus.Registerer, runtime internalapi.RuntimeService, images internalapi.ImageManagerService) (internalapi.RuntimeService, internalapi.ImageManagerService, error) {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	byOperation := []string{"operation_type"}
	ops := &operations{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_total",
			Help: "[ALPHA] Cumulative number of runtime operations by operation type."}, byOperation),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_errors_total",
			Help: "[ALPHA] Cumulative number of runtime operation errors by operation type."}, byOperation),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_runtime_operations_duration_seconds",
			Help:    "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 14)}, byOperation),
	}
	err := errors.Join(register(r, &ops.total), register(r, &ops.errors), register(r, &ops.duration))
	if err != nil {
		return nil, nil, err
	}
	return &measuredRuntime{runtime, ops}, &measuredImages{images, ops}, nil
}

// register registers a metric, or takes the one that an earlier engine has
// registered.
func register[M prometheus.Collector](r prometheus.Registerer, metric *M) error {
	err := r.Register(*metric)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(M); ok {
			*metric = existing
			return nil
		}
	}
	return err
}

// ended is deferred by a call that does not go on for long, to record that it has ended.
func (o *operations) ended(operation string, begin time.Time, err *error) {
	if v := recover(); v != nil {
		*err = panicked(operation, v)
	}
	o.counted(operation, *err)
	o.duration.WithLabelValues(operation).Observe(time.Since(begin).Seconds())
}

func (o *operations) counted(operation string, err error) {
	o.total.WithLabelValues(operation).Inc()
	failed := o.errors.WithLabelValues(operation) // also while none has: a series that appears has no rate
	if err != nil {
		failed.Inc()
	}
}

// panicked returns the error of a call that has panicked, with the stack in the log.
func panicked(operation string, v any) error {
	err := fmt.Errorf("the container runtime panicked in %s: %v", operation, v)
	log.G(context.Background()).WithError(err).WithField("stack", string(debug.Stack())).Error("The container runtime panicked")
	return err
}

// answered returns the error of a call: also of one without an answer, which the engine
// could do nothing with.
func answered(operation string, answer bool, err error) error {
	if err == nil && !answer {
		return fmt.Errorf("the container runtime has no answer to %s, and no error", operation)
	}
	return err
}
