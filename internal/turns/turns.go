// Package turns lets callers that are about the same thing take turns.
package turns

import (
	"context"
	"sync"
)

// Turns has the turns of many things, by name. Its zero value is ready. It holds nothing
// of things that nobody is about.
type Turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// Take waits for the turn of a thing, and returns what ends it. Turns are not in the
// order of the calls. The error is that of ctx.
func (t *Turns) Take(ctx context.Context, name string) (done func(), err error) {
	for {
		t.mu.Lock()
		turn, busy := t.busy[name]
		if !busy {
			turn = make(chan struct{})
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[name] = turn
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.busy, name)
				close(turn)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
