package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/node/queuemetrics"
)

// measured returns what a registry has of queues.
func measured(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		metric := family.Metric[0] // all queues of a test have one name
		switch {
		case metric.Gauge != nil:
			values[family.GetName()] = metric.Gauge.GetValue()
		case metric.Counter != nil:
			values[family.GetName()] = metric.Counter.GetValue()
		case metric.Histogram != nil:
			values[family.GetName()] = metric.Histogram.GetSampleSum()
			values[family.GetName()+"_count"] = float64(metric.Histogram.GetSampleCount())
		}
	}
	return values
}

// The metrics are those of client-go's queues.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		want := func(when string, want map[string]float64) {
			t.Helper()
			synctest.Wait()
			got := measured(t, registry)
			for metric, value := range want {
				if got["workqueue_"+metric] != value {
					t.Errorf("%s: %s is %v, want %v", when, metric, got["workqueue_"+metric], value)
				}
			}
		}
		pool := NewPool(0, queuemetrics.New(registry))
		fails := true
		delay := 4 * time.Second
		a := pool.New("queue", nil, func(context.Context, string, int, time.Time, error) (*time.Duration, error) { return &delay, nil },
			func(context.Context, string) error {
				time.Sleep(10 * time.Second)
				if fails {
					fails = false
					return errors.New("no")
				}
				return nil
			})
		b := pool.New("queue", nil, nil, func(context.Context, string) error { time.Sleep(8 * time.Second); return nil })
		ctx, cancel := context.WithCancel(t.Context())
		start(t, b, 1)
		done := make(chan struct{})
		go func() { defer close(done); a.Run(ctx, 1) }()
		a.Add("1")
		a.Add("1")
		synctest.Wait()
		a.Add("2")
		a.Add("1")
		time.Sleep(4 * time.Second)
		b.Add("1")
		time.Sleep(2*time.Second + updateInterval)
		want("at work", map[string]float64{
			"adds_total": 4, "depth": 2, "queue_duration_seconds_count": 2,
			"unfinished_work_seconds": 6.5 + 2.5, "longest_running_processor_seconds": 6.5, "retries_total": 0,
		})
		time.Sleep(5 * time.Second)
		want("later", map[string]float64{
			"retries_total": 1, "depth": 1, "work_duration_seconds": 10, "work_duration_seconds_count": 1, "queue_duration_seconds": 10,
		})
		a.Add("3")
		cancel()
		<-done
		time.Sleep(time.Minute)
		want("after the end", map[string]float64{
			"depth": 0, "unfinished_work_seconds": 0, "longest_running_processor_seconds": 0,
		})
	})
}

// What is added to a queue that is never run waits for nobody. What is added before
// a queue is run waits from then on.
func TestKeysOfAQueueThatIsNotRunDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		nothing := func(context.Context, string) error { return nil }
		pool := NewPool(0, queuemetrics.New(registry))
		idle, later := pool.New("queue", nil, nil, nothing), pool.New("queue", nil, nil, nothing)
		idle.Add("1")
		idle.AddAfter("2", time.Second)
		later.Add("1")
		if got := measured(t, registry); got["workqueue_depth"] != 0 || got["workqueue_adds_total"] != 0 {
			t.Errorf("before anything is run %v keys wait, and %v were added", got["workqueue_depth"], got["workqueue_adds_total"])
		}
		time.Sleep(time.Minute)
		start(t, later, 1)
		synctest.Wait()
		if got := measured(t, registry); got["workqueue_depth"] != 0 || got["workqueue_adds_total"] != 1 || got["workqueue_queue_duration_seconds"] != 60 {
			t.Errorf("after one queue was run the metrics are %v", got)
		}
	})
}
