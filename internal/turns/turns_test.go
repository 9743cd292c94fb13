package turns

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		first, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := turns.Take(t.Context(), "b") // at the same time
		if err != nil {
			t.Fatal(err)
		}
		other()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := turns.Take(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		var inside, most int
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				done, err := turns.Take(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				inside++ // the race detector watches
				most = max(most, inside)
				inside--
				done()
			})
		}
		synctest.Wait()
		first()
		group.Wait()
		if most != 1 || len(turns.busy) != 0 {
			t.Errorf("%d at once, %d names are left", most, len(turns.busy))
		}
	})
}
