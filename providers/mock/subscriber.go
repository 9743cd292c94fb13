package mock

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// subscriber delivers pods to a function, in order, the newest of each pod, and
// never under a lock. There are at most as many pods in wait as there are pods.
type subscriber struct {
	notify func(*corev1.Pod)
	wake   chan struct{} // has one element if there is something to deliver

	mu      sync.Mutex
	pending map[types.UID]*corev1.Pod
	order   []types.UID
}

func newSubscriber(notify func(*corev1.Pod)) *subscriber {
	return &subscriber{notify: notify, wake: make(chan struct{}, 1), pending: map[types.UID]*corev1.Pod{}}
}

// add has pod delivered, in place of an older one that still waits.
func (s *subscriber) add(pod *corev1.Pod) {
	s.mu.Lock()
	if s.pending[pod.UID] == nil {
		s.order = append(s.order, pod.UID)
	}
	s.pending[pod.UID] = pod
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) take() *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		s.order = nil
		return nil
	}
	uid := s.order[0]
	s.order = s.order[1:]
	pod := s.pending[uid]
	delete(s.pending, uid)
	return pod
}

// run delivers until ctx ends or done is closed.
func (s *subscriber) run(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-s.wake:
		}
		for ctx.Err() == nil {
			pod := s.take()
			if pod == nil {
				break
			}
			shown := *pod
			s.notify(&shown)
		}
	}
}
