package queue

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Pool runs the handlers of many queues. The queues that have something to do
// take turns, one key a turn: one with many keys delays the others by no more
// than that. One whose handlers all hang holds as many workers as it may have
// itself (see Queue.Start), and no more; and the two lanes of the queues (see
// ErrTakesLong) have workers of their own.
//
// A worker is a goroutine that lasts as long as there is work for it: a pool at
// rest has none. Its methods are safe for concurrent use.
type Pool struct {
	limit   int
	metrics workqueue.MetricsProvider

	mu    sync.Mutex // guards all below, and the state of the queues
	lanes [lanes]struct {
		busy  int // workers
		turns fifo[lane]
	}
	meters map[string]*meter // by the name of the queues
	spare  sync.Pool         // of *item: not those of other pools, since the lock is this one's
}

// NewPool makes a pool that runs at most limit handlers at a time in each lane,
// whatever its queues may each; zero or less means that only they have bounds.
// The queues are measured with metrics from there; nil means not at all.
func NewPool(limit int, metrics workqueue.MetricsProvider) *Pool {
	if metrics == nil {
		metrics = unmeasured{}
	}
	return &Pool{limit: limit, metrics: metrics, meters: map[string]*meter{}}
}

// New makes a queue whose handlers the pool runs. A nil limiter is
// DefaultRateLimiter, a nil shouldRetry retries for ever with the limiter's
// delays. Queues of one name share their metrics.
func (p *Pool) New(name string, limiter workqueue.TypedRateLimiter[any], shouldRetry ShouldRetryFunc, handler Handler) *Queue {
	if limiter == nil {
		limiter = DefaultRateLimiter()
	}
	q := &Queue{
		name:        name,
		handler:     handler,
		shouldRetry: shouldRetry,
		limiter:     limiter,
		about: func(ctx context.Context, key string) context.Context {
			return log.WithLogger(ctx, log.G(ctx).WithField("key", key))
		},
		pool:  p,
		meter: p.meter(name),
		items: map[string]*item{},
		done:  make(chan struct{}),
	}
	for i := range q.lanes {
		l := &q.lanes[i]
		l.queue, l.which, l.turn.of = q, i, l
	}
	return q
}

func (p *Pool) meter(name string) *meter {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.meters[name]
	if m == nil {
		m = newMeter(name, &p.mu, p.metrics)
		p.meters[name] = m
	}
	return m
}

// dispatch starts workers for the turns that may be taken. The pool is locked.
func (p *Pool) dispatch() {
	for which := range p.lanes {
		l := &p.lanes[which]
		for p.limit <= 0 || l.busy < p.limit {
			it := p.next(which)
			if it == nil {
				break
			}
			l.busy++
			go it.work() // ends with the handler, for which Queue.Wait waits
		}
	}
}

// next takes the next turn in a lane; nil means that nobody has anything to do there.
// The pool is locked.
func (p *Pool) next(which int) *item {
	for {
		l := p.lanes[which].turns.pop()
		if l == nil {
			return nil
		}
		l.inTurn = false
		if it := l.queue.take(l); it != nil {
			l.offer()
			return it
		}
	}
}

// work handles it, and then whatever has the next turn in its lane.
func (p *Pool) work(it *item) {
	which := it.in.which
	for it != nil {
		end := it.queue.handle(it)
		p.mu.Lock()
		surplus := it.released // another worker may have been started in its place
		it.queue.finish(it, end)
		it = nil
		if !surplus {
			if it = p.next(which); it == nil {
				p.lanes[which].busy--
			}
		}
		p.dispatch()
		p.mu.Unlock()
	}
}

// growStack has the runtime give a worker the stack that a request to the API server takes, while
// there is little to copy: it would double it some times on the way, and look at each frame.
//
//go:noinline
func growStack(i int) byte {
	var room [12 << 10]byte
	return room[i]
}
