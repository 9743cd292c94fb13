package node

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
)

// Workers do the work of one or many PodControllers. Those that share them take
// turns, one pod a turn, so that one with much to do delays the others by no
// more than that. A worker is a goroutine only while there is work: controllers
// at rest have none. Make one with NewWorkers.
type Workers struct {
	// Calls of providers, which may hang, are bounded for each controller only:
	// then a provider that hangs holds up its own node, and no other.
	calls *queue.Pool
	// What is written to the API, which they have in common, is bounded for all
	// of them together.
	writes *queue.Pool
}

// NewWorkers makes workers that do at most limit writes of pods to the API
// (status patches and removals) at the same time, for all the controllers that
// share them; zero or less means no limit. Each controller has a bound of its
// own besides, for its writes as for the calls of its provider: the
// podSyncWorkers of PodController.Run.
func NewWorkers(limit int, opts ...WorkersOption) *Workers {
	var o workersOptions
	for _, opt := range opts {
		opt(&o)
	}
	return &Workers{calls: queue.NewPool(0, o.metrics), writes: queue.NewPool(limit, o.metrics)}
}

// WorkersOption is an option of NewWorkers.
type WorkersOption func(*workersOptions)

type workersOptions struct{ metrics workqueue.MetricsProvider }

// WithQueueMetrics measures the queues of the controllers with metrics from
// there, in seconds, as client-go does its own: see queuemetrics.New. Without it
// they are not measured.
func WithQueueMetrics(metrics workqueue.MetricsProvider) WorkersOption {
	return func(o *workersOptions) { o.metrics = metrics }
}
