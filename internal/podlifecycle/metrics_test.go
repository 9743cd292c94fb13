package podlifecycle

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// measured is the sum of the histograms, or of the gauges, with these labels,
// given as name and value in turn.
func measured(t *testing.T, m *providercalls.Metrics, name string, labels ...string) (count uint64, sum float64) {
	t.Helper()
	for _, family := range gathered(t, m) {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if hasLabels(metric, labels) {
				count += metric.GetHistogram().GetSampleCount()
				sum += metric.GetHistogram().GetSampleSum() + metric.GetGauge().GetValue()
			}
		}
	}
	return count, sum
}

func gathered(t *testing.T, m *providercalls.Metrics) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func inFlight(t *testing.T, m *providercalls.Metrics, method string) float64 {
	t.Helper()
	_, value := measured(t, m, "vk_provider_calls_in_flight", "method", method)
	return value
}

func hasLabels(metric *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, pair := range metric.GetLabel() {
			found = found || pair.GetName() == labels[i] && pair.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

const (
	callSeconds   = "vk_provider_call_duration_seconds"
	statusSeconds = "kubelet_pod_status_sync_duration_seconds"
)

func TestProviderCallsAreMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := providercalls.NewMetrics()
		fail := errdefs.AsUnavailable(errors.New("away"))
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error {
				time.Sleep(3 * time.Second)
				err := fail
				fail = nil
				return err
			}
		})
		r.start(func(cfg *Config) { cfg.Metrics = m })
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		want(t, "CreatePod in flight", inFlight(t, m, "CreatePod"), 1)
		pass(time.Minute)
		want(t, "CreatePod in flight at the end", inFlight(t, m, "CreatePod"), 0)
		for _, code := range []string{"OK", "unavailable"} {
			count, sum := measured(t, m, callSeconds, "method", "CreatePod", "code", code)
			want(t, "CreatePod with "+code, count, 1)
			want(t, "its seconds", sum, 3)
		}
	})
}

// A call that panics is over, and has failed.
func TestPanicsAreMeasured(t *testing.T) {
	m := providercalls.NewMetrics()
	_ = providercalls.Do(t.Context(), m, providercalls.GetPods, providercalls.Pod{}, func(context.Context) error { panic("no") })
	count, _ := measured(t, m, callSeconds, "method", "GetPods", "code", "unknown")
	want(t, "GetPods with unknown", count, 1)
	want(t, "GetPods in flight", inFlight(t, m, "GetPods"), 0)
}

func TestWorkOnPodsIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := providercalls.NewMetrics()
		r.start(func(cfg *Config) { cfg.Metrics = m })
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		r.api.DeletePod("web")
		pass(time.Minute)
		for _, operation := range []string{"create", "kill"} {
			count, _ := measured(t, m, "kubelet_pod_worker_duration_seconds", "operation_type", operation)
			want(t, operation, count, 1)
		}
	})
}

// A process that finds in the API what its provider reports has nothing to write, and the next status counts
// from its change on.
func TestStatusSyncIsMeasuredFromTheChangeAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		pass(time.Minute)
		r.end()
		m := providercalls.NewMetrics()
		r.start(func(cfg *Config) { cfg.Metrics = m })
		pass(10 * time.Minute)
		r.provider.SetPhase("web", corev1.PodSucceeded)
		pass(5 * time.Minute)
		count, sum := measured(t, m, statusSeconds)
		want(t, "statuses", count, 1)
		if sum > 300 {
			t.Errorf("it took %v s to write, of the five minutes since the change", sum)
		}
	})
}

// Of a status that could not be written at once the whole time counts.
func TestStatusSyncIsMeasuredFromTheChange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := providercalls.NewMetrics()
		r.start(func(cfg *Config) { cfg.Metrics = m })
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		before, _ := measured(t, m, statusSeconds)
		r.api.Fail("patch pods/status", errors.New("away"))
		r.provider.SetPhase("web", corev1.PodSucceeded)
		pass(5 * time.Minute)
		count, _ := measured(t, m, statusSeconds)
		want(t, "statuses while none can be written", count-before, 0)
		r.api.Fail("patch pods/status", nil)
		pass(5 * time.Minute)
		count, sum := measured(t, m, statusSeconds)
		want(t, "statuses in the end", count-before, 1)
		if sum < 300 {
			t.Errorf("it took %v s to write, want the five minutes in which it failed", sum)
		}
	})
}
