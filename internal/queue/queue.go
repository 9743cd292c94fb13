// Package queue runs a handler for keys: at most one at a time for each key,
// the newest state wins, and a key whose handler failed comes back.
//
// It is what client-go's work queue is, for many queues in one process: they
// share the workers of a Pool, in turns, and cost no goroutine while nothing is
// to be done. A failed key is decided upon (ShouldRetryFunc), and what waits can
// be counted. First attempts are never delayed; only retries are.
package queue

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// ShouldRetryFunc decides about a key whose handler failed: the delay after
// which it is tried again, nil for the delay of the queue's rate limiter, or an
// error to give the key up until it is added again. timesTried counts from 1
// since the last success, originallyAdded is when the first of those tries was
// asked for.
type ShouldRetryFunc = func(ctx context.Context, key string, timesTried int, originallyAdded time.Time, err error) (*time.Duration, error)

// Handler does the work for a key. It must end when ctx does. It may return
// ErrTakesLong to be called again in the lane for that.
type Handler func(ctx context.Context, key string) error

// Queue is a set of keys to be handled, in the order in which they became due.
// Its methods are safe for concurrent use.
type Queue struct {
	name        string
	handler     Handler
	shouldRetry ShouldRetryFunc
	limiter     workqueue.TypedRateLimiter[any]
	about       func(ctx context.Context, key string) context.Context
	pool        *Pool
	meter       *meter
	done        chan struct{} // closed when it has ended, and its handlers have

	// The pool guards these.
	ctx     context.Context // nil until it is started
	workers int             // of the pool's, at most, in each lane
	ended   bool
	active  int // handlers
	items   map[string]*item
	lanes   [lanes]lane
}

// New makes a queue with workers of its own.
func New(name string, limiter workqueue.TypedRateLimiter[any], shouldRetry ShouldRetryFunc, handler Handler) *Queue {
	return NewPool(0, nil).New(name, limiter, shouldRetry, handler)
}

// Name has lines about a key logged with the logger of the context that about
// returns, which says what the key stands for; without it they have the key. It is
// to be called before Start.
func (q *Queue) Name(about func(ctx context.Context, key string) context.Context) { q.about = about }

// Add has key handled as soon as a worker is free. A key that is waiting is not
// added twice; one that is being handled is handled once more afterwards.
func (q *Queue) Add(key string) { q.AddAfter(key, 0) }

// AddAfter has key handled once delay has passed, or sooner if that is asked
// for, too: then it is handled once, for both.
func (q *Queue) AddAfter(key string, delay time.Duration) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if q.ended {
		return
	}
	it := q.item(key)
	q.count(it)
	q.schedule(it, delay)
	q.pool.dispatch()
}

// AddUnlessDelayed is Add for a key of which nothing new is known: if it is being
// handled, or is to be anyway, that is left as it is.
func (q *Queue) AddUnlessDelayed(key string) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if q.ended {
		return
	}
	if it := q.items[key]; it != nil && (it.due || it.running || it.timer != nil) {
		return
	}
	it := q.item(key)
	q.count(it)
	q.schedule(it, 0)
	q.pool.dispatch()
}

// Revisit has key handled once delay has passed, like AddAfter, but does not
// count it meanwhile: nothing is waiting to be done for it. Before the queue
// has started it does nothing.
func (q *Queue) Revisit(key string, delay time.Duration) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if q.ended || q.ctx == nil {
		return
	}
	q.schedule(q.item(key), delay)
	q.pool.dispatch()
}

// Run is Start, and Wait.
func (q *Queue) Run(ctx context.Context, workers int) {
	q.Start(ctx, workers)
	q.Wait()
}

// Start has keys handled by at most the given number of workers of the pool in each
// lane, until ctx ends. Keys that were added before are handled at once. It does not
// wait, and can be called once.
func (q *Queue) Start(ctx context.Context, workers int) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	q.ctx, q.workers = ctx, max(workers, 1)
	for _, it := range q.items {
		if it.due {
			q.meter.added()
		}
	}
	q.lanes[quickLane].ctx = ctx
	q.lanes[longLane].ctx = LongLane(ctx)
	context.AfterFunc(ctx, q.end)
	for i := range q.lanes {
		q.lanes[i].offer()
	}
	q.pool.dispatch()
}

// Wait returns when the context of Start has ended, and the last handler has.
func (q *Queue) Wait() { <-q.done }

// Len is the number of keys that are waiting, delayed or being handled.
func (q *Queue) Len() int {
	return q.lenOf(func(it *item) bool { return it.running || !it.waits.IsZero() })
}

// UnprocessedLen is the number of keys that are waiting or delayed.
func (q *Queue) UnprocessedLen() int {
	return q.lenOf(func(it *item) bool { return !it.waits.IsZero() })
}

// ItemsBeingProcessedLen is the number of keys that are being handled.
func (q *Queue) ItemsBeingProcessedLen() int {
	return q.lenOf(func(it *item) bool { return it.running })
}

// DueSince is since when a key had been due when its handler, which asks, was
// called: from then on it waited for a worker, or for an earlier call to end. It
// is zero for a key that is not being handled.
func (q *Queue) DueSince(key string) time.Time {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if it := q.items[key]; it != nil && it.running {
		return it.stood
	}
	return time.Time{}
}

// NextTry returns how often a key has failed since its last success, and when it is
// tried again: zero if it is being handled, or will not be.
func (q *Queue) NextTry(key string) (tries int, at time.Time) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	it := q.items[key]
	if it == nil || it.running || it.waits.IsZero() {
		return 0, time.Time{}
	}
	if it.timer != nil {
		return it.tries, it.end
	}
	return it.tries, time.Now()
}

func (q *Queue) lenOf(which func(*item) bool) (n int) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	for _, it := range q.items {
		if which(it) {
			n++
		}
	}
	return n
}
