// Package queue runs a handler for keys: at most one at a time for each key,
// the newest state wins, and a key whose handler failed comes back.
//
// It is client-go's work queue with what the pod controller needs on top: a
// decision for each failed key (ShouldRetry), and counters that can be asked.
// First attempts are never delayed; only retries are.
package queue

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// ShouldRetryFunc decides about a key whose handler failed: the delay after
// which it is tried again, nil for the delay of the queue's rate limiter, or an
// error to give the key up until it is added again. timesTried counts from 1
// since the last success, originallyAdded is when the first of those tries was
// asked for.
type ShouldRetryFunc = func(ctx context.Context, key string, timesTried int, originallyAdded time.Time, err error) (*time.Duration, error)

// Handler does the work for a key. It must end when ctx does.
type Handler func(ctx context.Context, key string) error

// Queue is a set of keys to be handled. Its methods are safe for concurrent use.
type Queue struct {
	name        string
	handler     Handler
	shouldRetry ShouldRetryFunc
	limiter     workqueue.TypedRateLimiter[any]

	mu         sync.Mutex
	keys       workqueue.TypedDelayingInterface[string] // nil until Run
	ended      bool
	waiting    map[string]time.Time // since when
	processing map[string]struct{}
	failing    map[string]failure
}

// failure is what is remembered of a key between its tries.
type failure struct {
	tries int
	since time.Time
}

// New makes a queue. A nil limiter is DefaultRateLimiter, a nil shouldRetry
// retries for ever with the limiter's delays. A queue holds no goroutine until
// it runs.
func New(name string, limiter workqueue.TypedRateLimiter[any], shouldRetry ShouldRetryFunc, handler Handler) *Queue {
	if limiter == nil {
		limiter = DefaultRateLimiter()
	}
	return &Queue{
		name:        name,
		handler:     handler,
		shouldRetry: shouldRetry,
		limiter:     limiter,
		waiting:     map[string]time.Time{},
		processing:  map[string]struct{}{},
		failing:     map[string]failure{},
	}
}

// Add has key handled as soon as a worker is free. A key that is waiting is not
// added twice; one that is being handled is handled once more afterwards.
func (q *Queue) Add(key string) { q.AddAfter(key, 0) }

// AddAfter has key handled once delay has passed. It does not delay a key that
// is waiting already.
func (q *Queue) AddAfter(key string, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	if _, waits := q.waiting[key]; !waits {
		q.waiting[key] = time.Now()
	}
	if q.keys != nil { // else Run adds it
		q.keys.AddAfter(key, delay)
	}
}

// Revisit has key handled once delay has passed, like AddAfter, but does not
// count it meanwhile: nothing is waiting to be done for it.
func (q *Queue) Revisit(key string, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys != nil {
		q.keys.AddAfter(key, delay)
	}
}

// Run handles keys with the given number of workers until ctx ends and those
// that are being handled are done. Keys that were added before are handled at
// once. It can be called once.
func (q *Queue) Run(ctx context.Context, workers int) {
	keys := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: q.name})
	q.mu.Lock()
	q.keys = keys
	for key := range q.waiting {
		keys.Add(key)
	}
	q.mu.Unlock()

	stop := context.AfterFunc(ctx, keys.ShutDown)
	defer stop()
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for q.next(ctx, keys) {
			}
			return nil
		})
	}
	_ = group.Wait() // the workers return no errors
	keys.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	clear(q.waiting)
	clear(q.failing)
}

func (q *Queue) next(ctx context.Context, keys workqueue.TypedDelayingInterface[string]) bool {
	key, shutdown := keys.Get()
	if shutdown {
		return false
	}
	defer keys.Done(key)
	if ctx.Err() != nil {
		return false
	}

	q.mu.Lock()
	added, ok := q.waiting[key]
	if !ok { // the rest of a delay that was overtaken
		added = time.Now()
	}
	delete(q.waiting, key)
	q.processing[key] = struct{}{}
	q.mu.Unlock()
	err := q.handle(ctx, key)
	if err != nil && ctx.Err() == nil {
		q.retry(ctx, key, added, err)
	}
	q.mu.Lock()
	delete(q.processing, key)
	q.mu.Unlock()
	if err == nil {
		q.forget(key)
	}
	return true
}

// handle makes an error of a panic, so that one pod cannot take down the rest.
func (q *Queue) handle(ctx context.Context, key string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while handling %s in queue %s: %v", key, q.name, r)
			log.G(ctx).WithField("stack", string(debug.Stack())).Error(err)
		}
	}()
	return q.handler(ctx, key)
}

func (q *Queue) retry(ctx context.Context, key string, added time.Time, err error) {
	q.mu.Lock()
	f, ok := q.failing[key]
	if !ok {
		f.since = added
	}
	f.tries++
	q.failing[key] = f
	q.mu.Unlock()

	logger := log.G(ctx).WithField("queue", q.name).WithField("key", key).WithField("tries", f.tries).WithError(err)
	delay, giveUp := q.delay(ctx, key, f, err)
	if giveUp != nil {
		logger.WithField("cause", giveUp.Error()).Error("Giving up")
		q.forget(key)
		return
	}
	logger = logger.WithField("delay", delay.String())
	if f.tries%10 == 1 { // often enough to be seen, not so often as to drown the rest
		logger.Warn("Will try again")
	} else {
		logger.Debug("Will try again")
	}
	q.AddAfter(key, delay)
}

// delay asks shouldRetry, and the limiter if that leaves it to it. Both may be
// somebody else's code: one that panics gets the longest delay.
func (q *Queue) delay(ctx context.Context, key string, f failure, err error) (delay time.Duration, giveUp error) {
	defer func() {
		if r := recover(); r != nil {
			log.G(ctx).WithField("stack", string(debug.Stack())).Errorf("panic while deciding on the retry of %s in queue %s: %v", key, q.name, r)
			delay, giveUp = MaxDelay, nil
		}
	}()
	if q.shouldRetry != nil {
		named, giveUp := q.shouldRetry(ctx, key, f.tries, f.since, err)
		if giveUp != nil {
			return 0, giveUp
		}
		if named != nil {
			return *named, nil
		}
	}
	return q.limiter.When(key), nil
}

func (q *Queue) forget(key string) {
	q.mu.Lock()
	_, failed := q.failing[key]
	delete(q.failing, key)
	q.mu.Unlock()
	if failed {
		q.limiter.Forget(key)
	}
}

// Len is the number of keys that are waiting, delayed or being handled.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	for key := range q.processing {
		if _, both := q.waiting[key]; !both {
			n++
		}
	}
	return n
}

// UnprocessedLen is the number of keys that are waiting or delayed.
func (q *Queue) UnprocessedLen() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// ItemsBeingProcessedLen is the number of keys that are being handled.
func (q *Queue) ItemsBeingProcessedLen() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.processing)
}
