package mock

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// subscriber delivers pods to a function, in order, the newest of each pod, and
// never under a lock. There are at most as many pods in wait as there are pods,
// and a goroutine only while there are some.
type subscriber struct {
	ctx    context.Context // what NotifyPods was called with
	notify func(*corev1.Pod)

	mu      sync.Mutex
	pending map[types.UID]*corev1.Pod
	order   []types.UID
	busy    bool // deliver is running, or about to
}

func newSubscriber(ctx context.Context, notify func(*corev1.Pod)) *subscriber {
	return &subscriber{ctx: ctx, notify: notify, pending: map[types.UID]*corev1.Pod{}}
}

// add has pod delivered, in place of an older one that still waits. It returns
// true if the caller has to see to it that deliver is called.
func (s *subscriber) add(pod *corev1.Pod) (idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[pod.UID] == nil {
		s.order = append(s.order, pod.UID)
	}
	s.pending[pod.UID] = pod
	idle, s.busy = !s.busy, true
	return idle
}

func (s *subscriber) next() *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		s.order, s.busy = nil, false
		return nil
	}
	uid := s.order[0]
	s.order = s.order[1:]
	pod := s.pending[uid]
	delete(s.pending, uid)
	return pod
}

// deliver delivers what waits, unless the context of the subscriber has ended or
// done is closed.
func (s *subscriber) deliver(done <-chan struct{}) {
	for pod := s.next(); pod != nil; pod = s.next() {
		select {
		case <-s.ctx.Done():
			return
		case <-done:
			return
		default:
			s.notify(pod)
		}
	}
}
