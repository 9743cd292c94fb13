package providercalls

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"
)

// counted is a context that counts what waits for its end.
type counted struct {
	context.Context
	mu    sync.Mutex
	after map[int]func()
	next  int
}

func (c *counted) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.next
	c.next++
	c.after[id] = f
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waits := c.after[id]
		delete(c.after, id)
		return waits
	}
}

func (c *counted) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.after)
}

func (*counted) Done() <-chan struct{} { return make(chan struct{}) }

// A node lives long, and has many calls.
func TestNothingIsLeftOfAContextThatNobodyHas(t *testing.T) {
	node := &counted{Context: t.Context(), after: map[int]func(){}}
	call := NewLasting(t.Context(), node)
	request, cancel := context.WithCancel(call)
	if got := node.waiting(); got != 1 {
		t.Errorf("%s: got %v", "waiting for the node's end", got)
	}
	left := weak.Make(call)
	runtime.GC()
	if left.Value() == nil {
		t.Fatal("the context is gone, though there is one that was made of it")
	}
	cancel()
	runtime.KeepAlive(request)
	call, request = nil, nil
	for deadline := time.Now().Add(time.Minute); node.waiting() > 0; runtime.Gosched() {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatal("the node still knows a context that nobody has")
		}
	}
	if got := left.Value(); got != nil {
		t.Errorf("%s: got %v", "the context", got)
	}
}

func TestLastingContextEndsWithItsParent(t *testing.T) {
	cause, errNotWanted := errors.New("the node was removed"), errors.New("the pod is not wanted")
	parent, end := context.WithCancelCause(t.Context())
	asked, unasked, early := NewLasting(t.Context(), parent), NewLasting(t.Context(), parent), NewLasting(t.Context(), parent)
	done := asked.Done()
	early.End(errNotWanted)
	end(cause)
	<-done
	for name, c := range map[string]*Lasting{"asked for its end before": asked, "not asked": unasked} {
		if got := c.Err(); got != context.Canceled {
			t.Errorf("%s: got %v", name+": error", got)
		}
		if got := context.Cause(c); got != cause {
			t.Errorf("%s: got %v", name+": cause", got)
		}
		select {
		case <-c.Done():
		case <-time.After(time.Minute):
			t.Errorf("%s: Done is not closed", name)
		}
	}
	if got := context.Cause(early); got != errNotWanted {
		t.Errorf("%s: got %v", "cause of one that has ended before", got)
	}
}
