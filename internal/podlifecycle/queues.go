package podlifecycle

import "github.com/virtual-kubelet/virtual-kubelet/internal/queue"

// Pods is the number of pods of which something is known.
func (pc *Controller) Pods() int { return pc.records.len() }

// Syncs is the queue of decisions and provider calls.
func (pc *Controller) Syncs() *queue.Queue { return pc.syncs }

// Removals is the queue of removals from the API.
func (pc *Controller) Removals() *queue.Queue { return pc.removals }

// Statuses is the queue of status patches.
func (pc *Controller) Statuses() *queue.Queue { return pc.statuses }
