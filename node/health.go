package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// ErrHandedOver is the cause (see context.WithCancelCause) with which the context
// of a node ends where another process goes on with the node, or has already
// taken it: then the last word, that the node is not ready, is not written.
var ErrHandedOver = errors.New("another process goes on with the node")

// ErrNodeRemoved is the cause (see context.WithCancelCause) with which the context of
// a node ends that was removed, so that nobody goes on with it: then the node says
// that it is not ready.
var ErrNodeRemoved = errors.New("the node was removed")

// errStopped is the health of a node whose controller has ended.
var errStopped = errors.New("the virtual kubelet has stopped")

// pingAgain asks the provider how it is, and returns when to ask next. It does
// not as long as the last ping hangs: pings do not pile up.
func (n *NodeController) pingAgain(ctx context.Context) (next time.Duration) {
	begin := time.Now()
	if n.hanging != nil {
		select {
		case <-n.hanging:
		default:
			return n.pingInterval
		}
	}
	var err error
	n.hanging, err = n.ping(ctx)
	select {
	case <-n.pings: // which the loop has not looked at yet; the newest counts
	default:
	}
	n.pings <- err
	return max(n.pingInterval-time.Since(begin), 0)
}

// ping asks the provider how it is, and does not wait longer than the timeout:
// then the answer is still to come, on the channel that is returned.
func (n *NodeController) ping(ctx context.Context) (hanging <-chan error, err error) {
	ctx, span := trace.StartSpan(ctx, providercalls.Ping)
	defer span.End()
	defer func() { span.SetStatus(err) }()
	timed, cancel := context.WithTimeout(ctx, n.pingTimeout)
	answer := make(chan error, 1)
	go func() { // ends with the provider's method, which is given a deadline
		defer cancel()
		begin := n.metrics.calls().Begins(providercalls.Ping)
		var err error
		defer func() {
			n.metrics.calls().Ended(providercalls.Ping, begin, err)
			answer <- err
		}()
		defer func() {
			if r := recover(); r != nil {
				err = providercalls.Panicked(ctx, providercalls.Ping, r)
			}
		}()
		err = n.provider.Ping(timed)
	}()
	select {
	case err := <-answer:
		return nil, err
	case <-timed.Done():
		select {
		case err := <-answer: // the answer ends the context as well
			return nil, err
		default:
		}
		return answer, fmt.Errorf("the provider did not answer a ping within %v", n.pingTimeout)
	}
}
