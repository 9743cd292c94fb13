package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/node/queuemetrics"
)

// hanging is a handler of keys some of which hang, in the lane for that, until the
// test lets them go.
type hanging struct {
	record
	hangs sync.Map // key → chan struct{}
}

func (h *hanging) hang(key string) (release func()) {
	c := make(chan struct{})
	h.hangs.Store(key, c)
	return func() { h.hangs.Delete(key); close(c) }
}

func (h *hanging) handle(ctx context.Context, key string) error {
	c, hangs := h.hangs.Load(key)
	switch {
	case hangs && !InLongLane(ctx):
		return ErrTakesLong
	case hangs:
		h.add("long " + key)
		select {
		case <-c.(chan struct{}):
		case <-ctx.Done():
		}
	default:
		h.add(key)
	}
	return nil
}

// Work that hangs uses up none of the workers of the rest, in a queue of its own as
// in one of a pool that others share.
func TestLongWorkHoldsUpNoOther(t *testing.T) {
	for name, limit := range map[string]int{"own workers": 0, "shared workers": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h hanging
				pool := NewPool(limit, nil)
				q, other := pool.New("test", nil, nil, h.handle), pool.New("test", nil, nil, h.handle)
				start(t, q, 2)
				start(t, other, 2)
				var releases []func()
				for i := range 10 {
					key := fmt.Sprint("h", i)
					releases = append(releases, h.hang(key))
					q.Add(key)
				}
				synctest.Wait()
				if n := len(h.handled()); n != 2 {
					t.Fatalf("%d hang at once, want as many as there are workers: 2", n)
				}
				if n, m := q.Len(), q.ItemsBeingProcessedLen(); n != 10 || m != 2 {
					t.Errorf("%d keys, %d being handled, want 10 and 2", n, m)
				}
				q.Add("a")
				other.Add("b")
				synctest.Wait()
				if now := h.handled()[2:]; !slices.Contains(now, "a") || !slices.Contains(now, "b") {
					t.Errorf("handled %q, want a and b too", now)
				}
				for _, release := range releases {
					release()
				}
				synctest.Wait()
				if n := q.Len(); n != 0 {
					t.Errorf("%d keys are left, want none", n)
				}
			})
		})
	}
}

// A key that waits for a worker of the long lane, and is added, is looked at again
// at once: there may be something else to do for it.
func TestKeyComesBackFromTheLineOfLongWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hanging
		q := New("test", nil, nil, h.handle)
		start(t, q, 1)
		defer h.hang("first")()
		q.Add("first")
		releases := map[string]func(){}
		for _, key := range []string{"a", "b", "c"} {
			releases[key] = h.hang(key)
			q.Add(key)
		}
		synctest.Wait()
		releases["b"]()
		q.AddUnlessDelayed("b") // nothing new: it keeps its place
		synctest.Wait()
		if got := h.handled(); !slices.Equal(got, []string{"long first"}) {
			t.Errorf("handled %q, want the first only", got)
		}
		q.Add("b")
		q.Add("a") // still takes long
		synctest.Wait()
		if got := h.handled(); !slices.Equal(got, []string{"long first", "b"}) {
			t.Errorf("handled %q, want b as well", got)
		}
		q.Release("first")
		synctest.Wait()
		if got := h.handled(); !slices.Equal(got, []string{"long first", "b", "long c"}) {
			t.Errorf("handled %q, want c in place of the first", got)
		}
		releases["a"]()
		releases["c"]()
		synctest.Wait()
		if got := h.handled(); !slices.Equal(got, []string{"long first", "b", "long c", "a"}) {
			t.Errorf("handled %q, want a, which takes no longer long", got)
		}
	})
}

// A handler that was released is still the only one of its key, is waited for, and
// leaves the number of workers as it was.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hanging
		var inside, most atomic.Int32
		q := NewPool(1, nil).New("test", nil, nil, func(ctx context.Context, key string) error {
			if InLongLane(ctx) {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
			}
			return h.handle(ctx, key)
		})
		ctx, cancel := context.WithCancel(t.Context())
		q.Start(ctx, 1)
		stuck := make(chan struct{})
		h.hangs.Store("stuck", stuck)
		q.Add("stuck")
		synctest.Wait()
		q.Release("stuck")
		q.Release("stuck")
		q.Release("unknown")
		q.Add("stuck")
		for i := range 5 {
			h.hang(fmt.Sprint(i))
			q.Add(fmt.Sprint(i))
		}
		synctest.Wait()
		if got := h.handled(); !slices.Equal(got, []string{"long stuck", "long 0"}) {
			t.Errorf("handled %q, want one in place of the released", got)
		}
		close(stuck)
		synctest.Wait()
		if n := most.Load(); n != 2 {
			t.Errorf("%d at once in the long lane, want 2: the released and another", n)
		}
		if n := q.ItemsBeingProcessedLen(); n != 1 {
			t.Errorf("%d are being handled once the released has returned, want 1", n)
		}
		cancel()
		q.Wait()
	})
}

// Moving to another lane is no failure, and counts as the same try.
func TestMovingIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		var tries []int
		var since []time.Time
		q := NewPool(0, queuemetrics.New(registry)).New("queue", nil, func(_ context.Context, _ string, n int, added time.Time, _ error) (*time.Duration, error) {
			tries, since = append(tries, n), append(since, added)
			after := time.Second
			return &after, nil
		}, func(ctx context.Context, _ string) error {
			if !InLongLane(ctx) {
				time.Sleep(time.Second)
				return ErrTakesLong
			}
			if len(tries) < 2 {
				return errors.New("no")
			}
			return nil
		})
		start(t, q, 1)
		begin := time.Now()
		q.Add("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(tries, []int{1, 2}) || since[0] != begin || since[1] != begin {
			t.Errorf("tries %v since %v, want 1 and 2 since %v", tries, since, begin)
		}
		got := measured(t, registry)
		if got["workqueue_adds_total"] != 3 || got["workqueue_retries_total"] != 2 || got["workqueue_depth"] != 0 {
			t.Errorf("metrics %v, want 3 adds, 2 retries and no depth", got)
		}
		if n := q.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}
