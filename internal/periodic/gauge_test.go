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
			value := g.Get(ctx, oldest, func(f func()) { go f() }, func(last int) int {
				count++
				time.Sleep(takes)
				return last + 1
			})
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
	})
}
