package queue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// meter measures the queues of one name in a pool, as client-go's work queues
// do. The pool's lock guards it.
type meter struct {
	mu      *sync.Mutex
	running map[*item]struct{}
	ticking bool // update will be called

	depth                 workqueue.GaugeMetric
	unfinished, longest   workqueue.SettableGaugeMetric
	adds, retries         workqueue.CounterMetric
	latency, workDuration workqueue.HistogramMetric
}

// updateInterval is how often the metrics of unfinished work are brought up to
// date while there is some.
const updateInterval = 500 * time.Millisecond

func newMeter(name string, mu *sync.Mutex, metrics workqueue.MetricsProvider) *meter {
	return &meter{
		mu:           mu,
		running:      map[*item]struct{}{},
		depth:        metrics.NewDepthMetric(name),
		unfinished:   metrics.NewUnfinishedWorkSecondsMetric(name),
		longest:      metrics.NewLongestRunningProcessorSecondsMetric(name),
		adds:         metrics.NewAddsMetric(name),
		retries:      metrics.NewRetriesMetric(name),
		latency:      metrics.NewLatencyMetric(name),
		workDuration: metrics.NewWorkDurationMetric(name),
	}
}

// added notes that a key is due.
func (m *meter) added() {
	m.adds.Inc()
	m.depth.Inc()
}

// moved notes that a key is due in another lane: it is the same add.
func (m *meter) moved() { m.depth.Inc() }

// dropped notes that a key that was due is not handled.
func (m *meter) dropped() { m.depth.Dec() }

func (m *meter) began(it *item) {
	m.depth.Dec()
	m.latency.Observe(it.began.Sub(it.dueAt).Seconds())
	m.running[it] = struct{}{}
	if !m.ticking {
		m.ticking = true
		time.AfterFunc(updateInterval, m.update)
	}
}

func (m *meter) ended(it *item) {
	m.workDuration.Observe(time.Since(it.began).Seconds())
	delete(m.running, it)
}

// update is called as long as there is unfinished work, and once more.
func (m *meter) update() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var total, longest float64
	for it := range m.running {
		age := time.Since(it.began).Seconds()
		total += age
		longest = max(longest, age)
	}
	m.unfinished.Set(total)
	m.longest.Set(longest)
	if m.ticking = len(m.running) > 0; m.ticking {
		time.AfterFunc(updateInterval, m.update)
	}
}

// unmeasured provides metrics that nobody sees.
type unmeasured struct{}

func (unmeasured) NewDepthMetric(string) workqueue.GaugeMetric            { return ignored{} }
func (unmeasured) NewAddsMetric(string) workqueue.CounterMetric           { return ignored{} }
func (unmeasured) NewLatencyMetric(string) workqueue.HistogramMetric      { return ignored{} }
func (unmeasured) NewWorkDurationMetric(string) workqueue.HistogramMetric { return ignored{} }
func (unmeasured) NewRetriesMetric(string) workqueue.CounterMetric        { return ignored{} }
func (unmeasured) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ignored{}
}
func (unmeasured) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ignored{}
}

type ignored struct{}

func (ignored) Inc()            {}
func (ignored) Dec()            {}
func (ignored) Set(float64)     {}
func (ignored) Observe(float64) {}
