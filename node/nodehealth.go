package node

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// errStopped is the health of a node whose controller has ended.
var errStopped = errors.New("the virtual kubelet has stopped")

// pingLoop asks the provider at intervals how it is. A ping that hangs is waited
// for before the next: they do not pile up.
func (n *NodeController) pingLoop(ctx context.Context) {
	ticker := time.NewTicker(n.pingInterval)
	defer ticker.Stop()
	hanging := n.hanging
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if hanging != nil {
			select {
			case <-hanging:
			default:
				continue
			}
		}
		var err error
		hanging, err = n.ping(ctx)
		select {
		case <-ctx.Done():
			return
		case n.pings <- err:
		}
	}
}

// ping asks the provider how it is, and does not wait longer than the timeout:
// then the answer is still to come, on the channel that is returned.
func (n *NodeController) ping(ctx context.Context) (hanging <-chan error, err error) {
	ctx, span := trace.StartSpan(ctx, methodPing)
	defer span.End()
	defer func() { span.SetStatus(err) }()
	timed, cancel := context.WithTimeout(ctx, n.pingTimeout)
	answer := make(chan error, 1)
	go func() { // ends with the provider's method, which is given a deadline
		defer cancel()
		begin := n.metrics.callBegins(methodPing)
		var err error
		defer func() {
			n.metrics.callEnded(methodPing, begin, err)
			answer <- err
		}()
		defer func() {
			if r := recover(); r != nil {
				log.G(ctx).WithField("stack", string(debug.Stack())).Errorf("provider panicked in Ping: %v", r)
				err = fmt.Errorf("the provider panicked in Ping: %v", r)
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
