package node

import "github.com/virtual-kubelet/virtual-kubelet/internal/queue"

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
func NewWorkers(limit int) *Workers {
	return &Workers{calls: queue.NewPool(0), writes: queue.NewPool(limit)}
}
