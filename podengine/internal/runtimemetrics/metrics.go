// Package runtimemetrics counts and times the calls of a container runtime, under
// the names that a kubelet has for them. What the numbers mean is left to
// docs/observability.md, and what is called to the engine.
package runtimemetrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	internalapi "k8s.io/cri-api/pkg/apis"
)

// operations are the metrics of all calls.
type operations struct {
	total    *prometheus.CounterVec
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// Measured returns the services with each call counted, registered with r. Those
// of several engines that are given the same r are counted together. A nil r
// means that nothing is measured.
func Measured(r prometheus.Registerer, runtime internalapi.RuntimeService, images internalapi.ImageManagerService) (internalapi.RuntimeService, internalapi.ImageManagerService, error) {
	if r == nil {
		return runtime, images, nil
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

// ended records that a call has ended, with an error or none.
func (o *operations) ended(operation string, begin time.Time, err *error) {
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
