package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// record keeps the keys that were handled, in order.
type record struct {
	mu   sync.Mutex
	keys []string
}

func (r *record) add(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, key)
}

func (r *record) handled() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys)
}

// slow is a handler that records the key, and takes a second.
func (r *record) slow(_ context.Context, key string) error {
	r.add(key)
	time.Sleep(time.Second)
	return nil
}

// With one worker for all, a key of a quiet queue waits for one key of a noisy
// queue, and not for all of them.
func TestNoisyQueueDelaysAQuietOneByOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		pool := NewPool(1, nil)
		noisy, quiet := pool.New("test", nil, nil, r.slow), pool.New("test", nil, nil, r.slow)
		start(t, noisy, 10)
		start(t, quiet, 10)
		for i := range 10000 {
			noisy.Add(fmt.Sprintf("noisy-%d", i))
		}
		time.Sleep(time.Minute + time.Second/2)
		before := len(r.handled())
		quiet.Add("quiet")
		time.Sleep(2 * time.Second)
		if at := slices.Index(r.handled(), "quiet"); at < 0 || at > before+1 {
			t.Errorf("the quiet queue's key was handled as number %d, after %d; want at most one in between", at, before)
		}
	})
}

// All that are busy get the same share.
func TestBusyQueuesShareEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(3, nil)
		var counts [7]atomic.Int32
		for i := range counts {
			q := pool.New("test", nil, nil, func(context.Context, string) error {
				counts[i].Add(1)
				time.Sleep(time.Second)
				return nil
			})
			start(t, q, 2)
			for n := range 1000 * (i + 1) { // however much they have
				q.Add(fmt.Sprint(n))
			}
		}
		time.Sleep(700 * time.Second)
		for i := range counts {
			if n := counts[i].Load(); n < 298 || n > 303 {
				t.Errorf("queue %d was given %d of 2100 turns, want 300", i, n)
			}
		}
	})
}

// A queue has no more handlers at once than it may have, and all together not
// more than the pool.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ limit, each, most int }{
			{limit: 0, each: 4, most: 12},
			{limit: 5, each: 4, most: 5},
			{limit: 20, each: 4, most: 12},
		} {
			pool := NewPool(tc.limit, nil)
			var all, peak atomic.Int32
			enter := func(now, peak *atomic.Int32) {
				if n := now.Add(1); n > peak.Load() {
					peak.Store(n)
				}
			}
			for range 3 {
				var own, ownPeak atomic.Int32
				q := pool.New("test", nil, nil, func(context.Context, string) error {
					enter(&all, &peak)
					enter(&own, &ownPeak)
					time.Sleep(time.Second)
					own.Add(-1)
					all.Add(-1)
					return nil
				})
				start(t, q, tc.each)
				for i := range 100 {
					q.Add(fmt.Sprint(i))
				}
				defer func() {
					if n := int(ownPeak.Load()); n > tc.each || tc.limit == 0 && n != tc.each {
						t.Errorf("limit %d: a queue had %d handlers at once, want %d", tc.limit, n, tc.each)
					}
				}()
			}
			time.Sleep(time.Hour)
			if n := int(peak.Load()); n != tc.most {
				t.Errorf("limit %d: %d handlers at once, want %d", tc.limit, n, tc.most)
			}
		}
	})
}

// A queue whose handlers all hang holds its own bound of the workers.
func TestQueueThatHangsHoldsItsOwnBound(t *testing.T) {
	for _, limit := range []int{0, 4} {
		synctest.Test(t, func(t *testing.T) {
			var r record
			pool := NewPool(limit, nil)
			hanging := pool.New("test", nil, nil, func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
			healthy := pool.New("test", nil, nil, r.slow)
			start(t, hanging, 3)
			start(t, healthy, 3)
			for i := range 100 {
				hanging.Add(fmt.Sprint(i))
				healthy.Add(fmt.Sprint(i))
			}
			time.Sleep(101 * time.Second)
			if n := len(r.handled()); n != 100 {
				t.Errorf("limit %d: the other queue had %d of 100 keys handled", limit, n)
			}
			if n := hanging.ItemsBeingProcessedLen(); n != 3 {
				t.Errorf("limit %d: %d handlers hang, want 3", limit, n)
			}
		})
	}
}

func TestKeysAreHandledInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		q := New("test", nil, nil, r.slow)
		var want []string
		add := func(key string) { q.Add(key); want = append(want, key) }
		add("before")
		add("the start")
		start(t, q, 1)
		for i := range 50 {
			add(fmt.Sprint(i))
		}
		q.Add("7") // keeps its place
		q.AddAfter("later", 5500*time.Millisecond)
		want = append(want, "later") // becomes due while those wait
		synctest.Wait()
		time.Sleep(time.Minute)
		if got := r.handled(); !slices.Equal(got, want) {
			t.Errorf("handled %q, want %q", got, want)
		}
	})
}

// A key that is asked for in different ways is handled once, at the earliest of
// the times.
func TestDelaysOfOneKeyAreOne(t *testing.T) {
	for name, tc := range map[string]struct {
		ask  func(q *Queue)
		want []time.Duration
	}{
		"later, sooner": {func(q *Queue) { q.AddAfter("a", time.Minute); q.AddAfter("a", time.Second) }, []time.Duration{time.Second}},
		"sooner, later": {func(q *Queue) { q.AddAfter("a", time.Second); q.AddAfter("a", time.Minute) }, []time.Duration{time.Second}},
		"later, now":    {func(q *Queue) { q.AddAfter("a", time.Minute); q.Add("a") }, []time.Duration{0}},
		"revisit, add":  {func(q *Queue) { q.Revisit("a", time.Minute); q.AddAfter("a", time.Second) }, []time.Duration{time.Second}},
		"add, revisit":  {func(q *Queue) { q.AddAfter("a", time.Minute); q.Revisit("a", time.Second) }, []time.Duration{time.Second}},
		"same moment":   {func(q *Queue) { q.AddAfter("a", time.Second); q.AddAfter("a", time.Second) }, []time.Duration{time.Second}},
		"one by one": {func(q *Queue) {
			q.AddAfter("a", time.Second)
			time.Sleep(2 * time.Second)
			q.AddAfter("a", time.Second)
		}, []time.Duration{time.Second, 3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var at []time.Duration
				begin := time.Now()
				q := New("test", nil, nil, func(context.Context, string) error {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Since(begin))
					return nil
				})
				start(t, q, 2)
				synctest.Wait()
				tc.ask(q)
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(at, tc.want) {
					t.Errorf("handled after %v, want %v", at, tc.want)
				}
				if n := q.Len(); n != 0 {
					t.Errorf("%d keys left", n)
				}
			})
		})
	}
}

// A thousand queues at rest, some with a delay, have no goroutines but those
// that wait for them.
func TestQueuesAtRestHaveNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		pool := NewPool(10, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var queues []*Queue
		before := runtime.NumGoroutine()
		for range 1000 {
			q := pool.New("test", nil, nil, func(context.Context, string) error { runs.Add(1); return nil })
			q.Start(ctx, 10)
			for i := range 10 {
				q.Add(fmt.Sprint(i))
			}
			q.Revisit("delayed", time.Hour)
			queues = append(queues, q)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := runs.Load(); n != 10000 {
			t.Errorf("handled %d keys, want 10000", n)
		}
		if n := runtime.NumGoroutine() - before; n > 5 { // those of the runtime come and go
			t.Errorf("%d goroutines more than without the queues", n)
		}
		cancel()
		for _, q := range queues {
			q.Wait()
		}
	})
}

// Run waits for the handlers that run, begins no other, and leaves no timer.
func TestEndOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, ended, others atomic.Int32
		pool := NewPool(2, nil)
		q := pool.New("test", nil, nil, func(ctx context.Context, _ string) error {
			begun.Add(1)
			<-ctx.Done()
			time.Sleep(time.Minute) // it takes its time
			ended.Add(1)
			return ctx.Err()
		})
		other := pool.New("test", nil, nil, func(context.Context, string) error { others.Add(1); return nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); q.Run(ctx, 2) }()
		start(t, other, 2)
		for i := range 10 {
			q.Add(fmt.Sprint(i))
		}
		q.AddAfter("delayed", time.Second/2)
		q.AddAfter("long delayed", time.Hour)
		time.Sleep(time.Second)
		other.Add("a")
		cancel()
		synctest.Wait()
		q.Add("late")
		q.AddAfter("late", time.Second)
		q.Revisit("late", time.Second)
		time.Sleep(30 * time.Second)
		select {
		case <-done:
			t.Error("Run returned before its handlers")
		default:
		}
		<-done
		if begun.Load() != 2 || ended.Load() != 2 || q.Len() != 0 {
			t.Errorf("%d begun, %d ended, %d left; want 2, 2, 0", begun.Load(), ended.Load(), q.Len())
		}
		time.Sleep(2 * time.Hour)
		if begun.Load() != 2 {
			t.Errorf("%d handlers began after the end", begun.Load()-2)
		}
		if others.Load() != 1 {
			t.Errorf("the other queue had %d keys handled, want 1: it gets the workers of the one that ended", others.Load())
		}
	})
}

// What was added while a key is handled is handled by a later run, whatever
// comes when: no addition is lost, and no key is handled twice at once.
func TestNothingIsLost(t *testing.T) {
	const keys, adders, rounds = 20, 8, 2000
	pool := NewPool(3, nil)
	var asked, seen [2][keys]atomic.Int64
	var inside [2][keys]atomic.Int32
	var queues [2]*Queue
	ctx, cancel := context.WithCancel(t.Context())
	index := func(key string) (i int) { _, _ = fmt.Sscan(strings.TrimPrefix(key, "key-"), &i); return i }
	for n := range queues {
		now := time.Duration(0)
		var tries atomic.Int64
		retry := func(context.Context, string, int, time.Time, error) (*time.Duration, error) { return &now, nil }
		queues[n] = pool.New("test", nil, retry, func(_ context.Context, key string) error {
			i := index(key)
			if inside[n][i].Add(1) != 1 {
				t.Error("two handlers for one key")
			}
			defer inside[n][i].Add(-1)
			if tries.Add(1)%7 == 0 {
				return errors.New("no")
			}
			seen[n][i].Store(asked[n][i].Load())
			return nil
		})
		queues[n].Start(ctx, 2)
	}
	var group sync.WaitGroup
	for a := range adders {
		group.Go(func() {
			for round := range rounds {
				n, i := (a+round)%2, (a*7+round)%keys
				asked[n][i].Add(1)
				queues[n].AddAfter(fmt.Sprintf("key-%d", i), time.Duration(round%3)*10*time.Microsecond)
			}
		})
	}
	group.Wait()
	for queues[0].Len()+queues[1].Len() > 0 {
		runtime.Gosched()
	}
	for n := range queues {
		for i := range keys {
			if asked[n][i].Load() != seen[n][i].Load() {
				t.Errorf("queue %d, key %d: asked %d times, the last run saw %d", n, i, asked[n][i].Load(), seen[n][i].Load())
			}
		}
	}
	cancel()
	queues[0].Wait()
	queues[1].Wait()
}
