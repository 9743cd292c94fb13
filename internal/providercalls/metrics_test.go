package providercalls

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// Nobody pays for labels with each call.
func TestMeasuringACallAllocatesNothing(t *testing.T) {
	m := NewMetrics()
	if n := testing.AllocsPerRun(100, func() { m.Ended(GetPod, m.Begins(GetPod), nil) }); n != 0 {
		t.Errorf("%v allocations for a call, want none", n)
	}
}

func TestMetricsFollowPrometheusConventions(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewMetrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Nil measures nothing, and is no harm.
func TestNoMetrics(t *testing.T) {
	var m *Metrics
	m.Ended(GetPod, m.Begins(GetPod), nil)
	m.Worked(OperationSync, time.Now())
	m.StatusWritten(time.Now())
	m.RivalsSeen(1)
}
