package podengine

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// runtimeEvents are the events that a runtime sends of its containers, if it sends
// any.
type runtimeEvents struct {
	engine    *Engine
	connected atomic.Bool
	changed   chan struct{} // something may have changed; has room for one
}

func newRuntimeEvents(e *Engine) *runtimeEvents {
	return &runtimeEvents{engine: e, changed: make(chan struct{}, 1)}
}

// relistAfter is how long it takes to the next relist. Events may be lost, so
// there is one with them too.
func (r *runtimeEvents) relistAfter() time.Duration {
	if r.connected.Load() {
		return relistSeldom
	}
	return relistEvery
}

// relist asks for a relist soon.
func (r *runtimeEvents) relist() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// watch receives events until ctx ends, or the runtime turns out to send none.
func (r *runtimeEvents) watch(ctx context.Context) {
	delay := time.Duration(0)
	for ctx.Err() == nil {
		begin := time.Now()
		err := r.listen(ctx)
		r.connected.Store(false)
		r.relist() // for what was missed, and then as often as without events
		if status.Code(err) == codes.Unimplemented {
			log.G(ctx).Debug("The container runtime sends no events; it is listed each second")
			return
		}
		if time.Since(begin) > lastRetry {
			delay = 0
		}
		delay = periodic.Doubled(delay, firstRetry, lastRetry)
		_ = periodic.Sleep(ctx, delay)
	}
}

// listen wakes the workers of pods that have events, until the connection ends.
func (r *runtimeEvents) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *runtimeapi.ContainerEventResponse)
	done := make(chan error, 1)
	go func() { // it ends before listen does: see below
		done <- r.engine.cfg.Runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
			r.relist() // for what was before
		})
	}()
	for {
		select {
		case event := <-events:
			r.connected.Store(true) // a runtime answers Unimplemented only after it has accepted the connection
			r.accept(event)
		case err := <-done:
			return err
		}
	}
}

func (r *runtimeEvents) accept(event *runtimeapi.ContainerEventResponse) {
	uid := event.GetPodSandboxStatus().GetMetadata().GetUid()
	if uid == "" {
		r.relist() // which shows the pod
		return
	}
	r.engine.nudge(types.UID(uid))
}
