package periodic

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A measurement that takes long is waited for as long as its caller has time, is not begun
// a second time meanwhile, nor soon after it.
func TestGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gauge[int]
		count, takes := 0, time.Duration(0)
		get := func(wait, oldest time.Duration) int {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			Await(ctx, g.Start(oldest, func(f func()) { go f() }, func(last int, _ func(int)) int {
				count++
				time.Sleep(takes)
				return last + 1
			}))
			value, _ := g.Last()
			synctest.Wait()
			return value
		}
		want := func(what string, got, value, measured int) {
			t.Helper()
			if got != value || count != measured {
				t.Errorf("%s: it is %d, and was measured %d times, want %d and %d", what, got, count, value, measured)
			}
		}
		if _, ok := g.Last(); ok {
			t.Error("it was measured before anybody wanted it")
		}
		want("at first", get(time.Second, 0), 1, 1)
		want("at once again", get(time.Second, 0), 2, 2)
		want("not that old", get(time.Second, time.Minute), 2, 2)
		time.Sleep(time.Minute)
		takes = 10 * time.Second
		want("that old", get(time.Second, time.Minute), 2, 3)
		want("not twice", get(time.Second, 0), 2, 3)
		want("waited for", get(time.Minute, 0), 3, 3)
		time.Sleep(199 * time.Second)
		want("not soon", get(time.Minute, 0), 3, 3)
		time.Sleep(time.Second)
		want("later", get(time.Minute, 0), 4, 4)
		time.Sleep(time.Hour)
		takes = 10 * time.Minute
		want("for long", get(time.Hour, 0), 5, 5)
		time.Sleep(10*time.Minute - 1)
		want("not soon after long", get(time.Hour, 0), 5, 5)
		time.Sleep(time.Nanosecond)
		want("in ten minutes at most", get(time.Hour, 0), 6, 6)
	})
}

// What is known before a measurement ends replaces the value at once, but it is not measured yet.
// Those that take long take no time from others that are waited for.
func TestGaugeSoFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, fast Gauge[string]
		start := func(f func()) { go f() }
		busy := []<-chan struct{}{slow.Start(0, start, func(_ string, soFar func(string)) string {
			soFar("part")
			time.Sleep(time.Minute)
			return "all"
		}), fast.Start(0, start, func(string, func(string)) string { return "all" })}
		want := func(g *Gauge[string], value string, measured bool) {
			t.Helper()
			if got, ok := g.Last(); got != value || ok != measured {
				t.Errorf("it is %q, measured: %t, want %q, %t", got, ok, value, measured)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		Await(ctx, busy...)
		want(&slow, "part", false)
		want(&fast, "all", true)
		Await(t.Context(), busy...)
		want(&slow, "all", true)
	})
}
