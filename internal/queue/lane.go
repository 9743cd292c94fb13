package queue

import (
	"context"
	"errors"
)

// A queue has two lanes, with as many workers each. All keys begin in the first. A
// handler that is about to begin work which may take long, or hang, has its key
// handled again in the second: so such work never uses up the workers of the rest. A
// key that is added while it stands in the second lane, or is handled there, comes
// back to the first: there may be something else to do for it now.
const (
	quickLane = iota
	longLane
	lanes
)

// ErrTakesLong is what a handler returns to have its key handled in the lane for work
// that may take long, where InLongLane holds. It is no failure. There it is one.
var ErrTakesLong = errors.New("the key is to be handled in the lane for work that may take long")

type longLaneKey struct{}

// InLongLane reports whether ctx is that of a handler in the lane for work that may
// take long.
func InLongLane(ctx context.Context) bool { return ctx.Value(longLaneKey{}) != nil }

// LongLane returns ctx as the context of a handler in that lane.
func LongLane(ctx context.Context) context.Context {
	return context.WithValue(ctx, longLaneKey{}, true)
}

// lane is one of a queue's. The pool guards it.
type lane struct {
	queue    *Queue
	which    int
	ctx      context.Context // of its handlers
	handling int             // those that count against the workers
	line     fifo[item]      // those to be handled, but for those that are being handled
	inTurn   bool            // it stands in the pool's line
	turn     place[lane]
}

// offer puts the lane in the pool's line, if it has a key that may be handled now.
func (l *lane) offer() {
	if l.inTurn || l.queue.ctx == nil || l.handling >= l.queue.workers || l.line.empty() {
		return
	}
	l.inTurn = true
	l.queue.pool.lanes[l.which].turns.push(&l.turn)
}

// Release has the handler of a key that is at work no longer count against the
// workers: another key may be handled in its place, though never the same. It is for
// one that was asked to end and does not, and for one that only waits.
func (q *Queue) Release(key string) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	it := q.items[key]
	if it == nil || !it.running || it.released {
		return
	}
	it.released = true
	it.in.handling--
	q.pool.lanes[it.in.which].busy--
	if !q.ended {
		it.in.offer()
		q.pool.dispatch()
	}
}
