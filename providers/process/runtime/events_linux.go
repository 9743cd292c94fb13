package runtime

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxEvents is how many events wait for a subscriber that is slow.
const maxEvents = 4096

// hub hands events to subscribers, in order.
type hub struct {
	mu          sync.Mutex
	closed      chan struct{}
	subscribers map[*subscriber]bool
}

// subscriber is one GetContainerEvents.
type subscriber struct {
	queue chan *runtimeapi.ContainerEventResponse
	// lost is closed when an event did not fit.
	lost chan struct{}
}

func newHub() *hub {
	return &hub{closed: make(chan struct{}), subscribers: map[*subscriber]bool{}}
}

func (h *hub) subscribe() *subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &subscriber{queue: make(chan *runtimeapi.ContainerEventResponse, maxEvents), lost: make(chan struct{})}
	h.subscribers[s] = true
	return s
}

func (h *hub) unsubscribe(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subscribers, s)
}

func (h *hub) publish(e *runtimeapi.ContainerEventResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscribers {
		select {
		case s.queue <- e:
		default:
			delete(h.subscribers, s)
			close(s.lost)
		}
	}
}

// wanted reports whether anybody listens: else an event need not be made.
func (h *hub) wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subscribers) > 0
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
}

// GetContainerEvents implements the CRI: it sends what happens from now on to
// events, until ctx ends or the runtime is closed, or events were lost because
// nobody received them: then the client must list everything again.
//
// The callback is called, with nil, as soon as no event is missed any more.
func (r *Runtime) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	s := r.events.subscribe()
	defer r.events.unsubscribe(s)
	if established != nil {
		established(nil)
	}
	for {
		var e *runtimeapi.ContainerEventResponse
		select {
		case e = <-s.queue:
		case <-s.lost:
			return status.Error(codes.DataLoss, "events were lost, since they were not taken in time: list everything, and listen again")
		case <-ctx.Done():
			return ctx.Err()
		case <-r.events.closed:
			return status.Error(codes.Unavailable, "the runtime is closed")
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.events.closed:
			return status.Error(codes.Unavailable, "the runtime is closed")
		}
	}
}

// publishOf publishes an event of a container.
func (r *Runtime) publishOf(c *container, kind runtimeapi.ContainerEventType) {
	if box, err := r.sandbox(c.sandbox); err == nil {
		r.publish(box, c.id, kind)
	}
}

// publish publishes an event of a sandbox or of a container in it, with how all of
// it stands.
func (r *Runtime) publish(box *sandbox, id string, kind runtimeapi.ContainerEventType) {
	if !r.events.wanted() {
		return
	}
	r.events.publish(&runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: r.statusOfSandbox(box), ContainersStatuses: r.statusesOf(box.id),
	})
}
