package queue

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a queue in the bubble of a synctest test until the test ends.
func start(t *testing.T, q *Queue, workers int) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx, workers) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestKeyIsNeverHandledTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most, runs atomic.Int32
		q := New("test", nil, nil, func(context.Context, string) error {
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			inside.Add(-1)
			runs.Add(1)
			return nil
		})
		start(t, q, 5)
		q.Add("a")
		synctest.Wait()
		for range 10 {
			q.Add("a")
		}
		time.Sleep(10 * time.Second)
		if most.Load() != 1 || runs.Load() != 2 {
			t.Errorf("handled %d times, %d at once; want 2, 1", runs.Load(), most.Load())
		}
	})
}

func TestFailuresAreRetriedForEverWithCappedDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Time
		q := New("test", nil, nil, func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			return errors.New("no")
		})
		begin := time.Now()
		start(t, q, 1)
		q.Add("a")
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if at[0].After(begin) {
			t.Errorf("the first try was delayed by %v", at[0].Sub(begin))
		}
		if len(at) < 100 {
			t.Errorf("tried %d times in two hours, want at least once a minute", len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap > MaxDelay {
				t.Fatalf("gap %d is %v, want at most %v", i, gap, MaxDelay)
			}
		}
	})
}

// The time that a key waits is that for a worker, or for an earlier call, and not
// the delay that it was added with.
func TestDueSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q *Queue
		var mu sync.Mutex
		waited := map[string][]time.Duration{}
		q = New("test", nil, nil, func(_ context.Context, key string) error {
			mu.Lock()
			waited[key] = append(waited[key], time.Since(q.DueSince(key)))
			mu.Unlock()
			time.Sleep(10 * time.Second)
			return nil
		})
		start(t, q, 1)
		synctest.Wait()
		q.Add("a")
		q.AddAfter("b", 3*time.Second)
		time.Sleep(time.Second)
		q.Add("a") // while it is being handled
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		want := map[string][]time.Duration{"a": {0, 19 * time.Second}, "b": {7 * time.Second}}
		if !reflect.DeepEqual(waited, want) {
			t.Errorf("the keys waited %v, want %v", waited, want)
		}
		if since := q.DueSince("a"); !since.IsZero() {
			t.Errorf("a key that is not being handled was due since %v", since)
		}
	})
}

func TestShouldRetryDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delay := 7 * time.Second
		var tries atomic.Int32
		var tried atomic.Int32
		q := New("test", nil,
			func(_ context.Context, key string, timesTried int, since time.Time, err error) (*time.Duration, error) {
				tried.Store(int32(timesTried))
				if timesTried == 3 {
					return nil, errors.New("enough")
				}
				return &delay, nil
			},
			func(context.Context, string) error { tries.Add(1); return errors.New("no") })
		start(t, q, 1)
		q.Add("a")
		time.Sleep(13 * time.Second)
		if tries.Load() != 2 {
			t.Errorf("tried %d times after 13 s, want 2", tries.Load())
		}
		time.Sleep(time.Hour)
		if tries.Load() != 3 || tried.Load() != 3 || q.Len() != 0 {
			t.Errorf("tried %d times (said %d), %d left; want 3, 3, 0", tries.Load(), tried.Load(), q.Len())
		}
	})
}

func TestPanicIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		q := New("test", nil, nil, func(context.Context, string) error {
			if tries.Add(1) == 1 {
				panic("boom")
			}
			return nil
		})
		start(t, q, 1)
		q.Add("a")
		time.Sleep(time.Second)
		if tries.Load() != 2 {
			t.Errorf("tried %d times, want a retry after the panic", tries.Load())
		}
	})
}

func TestLengths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		q := New("test", nil, nil, func(context.Context, string) error { <-release; return nil })
		start(t, q, 1)
		check := func(total, waiting, processing int) {
			t.Helper()
			synctest.Wait()
			if q.Len() != total || q.UnprocessedLen() != waiting || q.ItemsBeingProcessedLen() != processing {
				t.Errorf("lengths %d %d %d, want %d %d %d", q.Len(), q.UnprocessedLen(), q.ItemsBeingProcessedLen(), total, waiting, processing)
			}
		}
		check(0, 0, 0)
		q.Add("a")
		check(1, 0, 1)
		q.Add("b")
		q.AddAfter("c", time.Hour)
		check(3, 2, 1)
		q.Add("a") // once more after this one
		check(3, 3, 1)
		close(release)
		check(1, 1, 0)
		time.Sleep(2 * time.Hour)
		check(0, 0, 0)
	})
}

func TestKeysThatWereAddedBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		q := New("test", nil, nil, func(context.Context, string) error { runs.Add(1); return nil })
		q.Add("a")
		q.AddAfter("b", time.Hour)
		start(t, q, 1)
		synctest.Wait()
		if runs.Load() != 2 || q.Len() != 0 {
			t.Errorf("handled %d, %d left; want 2, 0", runs.Load(), q.Len())
		}
	})
}

func TestNothingIsKeptAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		q := New("test", nil, nil, func(context.Context, string) error { return nil })
		q.Run(ctx, 1)
		q.Add("a")
		if q.Len() != 0 {
			t.Errorf("%d keys wait for a queue that has ended", q.Len())
		}
	})
}

func TestRevisitDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		q := New("test", nil, nil, func(context.Context, string) error { runs.Add(1); return nil })
		start(t, q, 1)
		synctest.Wait()
		q.Revisit("a", time.Minute)
		if q.Len() != 0 {
			t.Errorf("length %d, want 0", q.Len())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if runs.Load() != 1 {
			t.Errorf("handled %d times, want 1", runs.Load())
		}
	})
}

// A retry function that panics is survived: the key comes back, slowly.
func TestRetryFuncThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		q := New("test", nil,
			func(context.Context, string, int, time.Time, error) (*time.Duration, error) { panic("boom") },
			func(context.Context, string) error { tries.Add(1); return errors.New("no") })
		start(t, q, 1)
		q.Add("a")
		time.Sleep(10*time.Minute + time.Second)
		if tries.Load() != 11 {
			t.Errorf("tried %d times in ten minutes, want one a minute", tries.Load())
		}
	})
}

// A key of which nothing is new keeps its delay, and is not handled once more after a
// handler that is at it; one that is at rest is handled.
func TestAddUnlessDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		after := 40 * time.Second
		q := New("test", nil, func(context.Context, string, int, time.Time, error) (*time.Duration, error) { return &after, nil },
			func(context.Context, string) error {
				time.Sleep(time.Second)
				if runs.Add(1) < 3 {
					return errors.New("no")
				}
				return nil
			})
		start(t, q, 1)
		q.AddUnlessDelayed("a")
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			q.AddUnlessDelayed("a") // it is being handled
		}
		for range 30 {
			time.Sleep(time.Second)
			q.AddUnlessDelayed("a") // it is delayed
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("handled %d times, want 1: the retry keeps its delay", n)
		}
		time.Sleep(100 * time.Second)
		if n := runs.Load(); n != 3 {
			t.Errorf("handled %d times, want 3", n)
		}
		q.AddUnlessDelayed("a")
		time.Sleep(2 * time.Second)
		if n := runs.Load(); n != 4 {
			t.Errorf("handled %d times, want 4: it was at rest", n)
		}
	})
}
