package podengine

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// confirmOrphan is how often in a row a sandbox that belongs to no pod has to be
// listed before it is removed.
const confirmOrphan = 3

// orphans removes what is left of pods that this node does not have: sandboxes, those
// of a process that was killed before it could write what it was about to do, or
// whose state was lost; and volumes and files, once there is no sandbox. It takes
// them one after the other, and holds up nobody meanwhile.
type orphans struct {
	engine     *Engine
	seen       map[string]int // how often, by sandbox; only look uses it
	unrecorded map[types.UID]int
	due        chan remains // to be removed; what comes while run is busy is seen again
}

// remains are sandboxes by their IDs with their pods, and pods that have files only.
type remains struct {
	sandboxes map[string]types.UID
	files     []types.UID
}

func newOrphans(e *Engine) *orphans {
	s := &orphans{engine: e, seen: map[string]int{}, unrecorded: map[types.UID]int{}, due: make(chan remains)}
	for _, uid := range e.unrecorded {
		s.unrecorded[uid] = 0
	}
	return s
}

// observe counts how often sandboxes were listed without a pod, and passes on what is
// to be removed. boxes are all that there are, with their pods.
func (s *orphans) observe(boxes map[string]types.UID) {
	for id := range s.seen {
		if _, still := boxes[id]; !still {
			delete(s.seen, id)
		}
	}
	due := remains{sandboxes: map[string]types.UID{}}
	has := map[types.UID]bool{}
	for id, uid := range boxes {
		has[uid] = true
		if s.engine.worker(uid) != nil {
			delete(s.seen, id)
			continue
		}
		if s.seen[id]++; s.seen[id] >= confirmOrphan {
			due.sandboxes[id] = uid
		}
	}
	for uid := range s.unrecorded {
		switch {
		case s.engine.worker(uid) != nil:
			delete(s.unrecorded, uid) // it has a checkpoint again
		case has[uid]:
			s.unrecorded[uid] = 0
		default:
			if s.unrecorded[uid]++; s.unrecorded[uid] >= confirmOrphan {
				due.files = append(due.files, uid)
			}
		}
	}
	if len(due.sandboxes)+len(due.files) == 0 {
		return
	}
	select {
	case s.due <- due:
		for id := range due.sandboxes {
			delete(s.seen, id) // one that cannot be removed is seen again
		}
		for _, uid := range due.files {
			s.unrecorded[uid] = 0
			if _, err := os.Lstat(s.engine.podDir(uid)); errors.Is(err, fs.ErrNotExist) {
				delete(s.unrecorded, uid)
			}
		}
	default:
	}
}

// run removes what is due, until ctx ends.
func (s *orphans) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case due := <-s.due:
			for id, uid := range due.sandboxes {
				s.clear(ctx, uid, "Removing a sandbox that belongs to no pod", func() error { return s.removeSandbox(ctx, id, uid) })
			}
			for _, uid := range due.files {
				if _, err := os.Lstat(s.engine.podDir(uid)); err != nil {
					continue // removed before
				}
				s.clear(ctx, uid, "Removing the files of a pod that is not known", func() error {
					return errors.Join(s.engine.volumes.Teardown(uid), s.engine.removeState(uid))
				})
			}
		}
	}
}

// removeSandbox removes a sandbox, and the control group that the runtime made for it:
// again, if it was at work when the pod ended. The group comes first, since a sandbox that
// is still there has it tried again.
func (s *orphans) removeSandbox(ctx context.Context, id string, uid types.UID) error {
	if err := s.engine.stopSandbox(ctx, id); err != nil {
		return err
	}
	if err := s.engine.removeCgroups(ctx, uid); err != nil {
		return err
	}
	return s.engine.removeStopped(ctx, id)
}

// clear removes something of a pod that this node does not have. The pod is not
// created meanwhile.
func (s *orphans) clear(ctx context.Context, uid types.UID, what string, remove func() error) {
	if ctx.Err() != nil || !s.engine.beginClearing(uid) {
		return
	}
	defer s.engine.endClearing(uid)
	logger := log.G(ctx).WithField("uid", string(uid))
	logger.Warn(what)
	if err := remove(); err != nil && ctx.Err() == nil {
		logger.WithError(err).Warn("Cannot remove what is left of a pod that is not known yet")
	}
}

// beginClearing keeps a pod from being created. It reports false if the node has it.
func (e *Engine) beginClearing(uid types.UID) bool {
	e.taking.Lock()
	defer e.taking.Unlock()
	if e.worker(uid) != nil {
		return false
	}
	e.clearing[uid] = true
	return true
}

func (e *Engine) endClearing(uid types.UID) {
	e.taking.Lock()
	defer e.taking.Unlock()
	delete(e.clearing, uid)
}
