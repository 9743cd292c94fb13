package podengine

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// seenStray is how often in a row a sandbox has to be seen that belongs to no
// pod, before it is removed.
const seenStray = 3

// strays removes sandboxes of this node that belong to no pod: those of a process
// that was killed before it could write what it was about to do, or whose state
// was lost. It takes them one after the other, and holds up nobody meanwhile.
type strays struct {
	engine *Engine
	seen   map[string]int            // how often, by sandbox; only look uses it
	due    chan map[string]types.UID // to be removed; what comes while run is busy is seen again
}

func newStrays(e *Engine) *strays {
	return &strays{engine: e, seen: map[string]int{}, due: make(chan map[string]types.UID)}
}

// look takes note of the sandboxes that there are, by their pods.
func (s *strays) look(boxes map[string]types.UID) {
	for id := range s.seen {
		if _, still := boxes[id]; !still {
			delete(s.seen, id)
		}
	}
	due := map[string]types.UID{}
	for id, uid := range boxes {
		if s.engine.worker(uid) != nil {
			delete(s.seen, id)
			continue
		}
		if s.seen[id]++; s.seen[id] >= seenStray {
			due[id] = uid
		}
	}
	if len(due) == 0 {
		return
	}
	select {
	case s.due <- due:
		for id := range due {
			delete(s.seen, id) // one that cannot be removed is seen again
		}
	default:
	}
}

// run removes what is due, until ctx ends.
func (s *strays) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case due := <-s.due:
			for id, uid := range due {
				s.remove(ctx, id, uid)
			}
		}
	}
}

func (s *strays) remove(ctx context.Context, id string, uid types.UID) {
	if ctx.Err() != nil || s.engine.worker(uid) != nil { // a pod that has come meanwhile
		return
	}
	logger := log.G(ctx).WithFields(log.Fields{"uid": string(uid), "sandbox": id})
	logger.Warn("Removing a sandbox that belongs to no pod")
	if err := s.engine.removeSandbox(ctx, id); err != nil && ctx.Err() == nil {
		logger.WithError(err).Warn("Cannot remove a sandbox that belongs to no pod yet")
	}
}
