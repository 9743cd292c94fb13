package podwatch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
)

// A watch that ends in the midst of events that nobody receives any more leaves no
// goroutine behind: the bubble would not end.
func TestWatchThatEndsWithEventsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, _ func()) {
		busy := make(chan struct{})
		pods := podwatch.NewPods()
		if _, _, err := pods.Subscribe(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-busy }}); err != nil {
			t.Fatal(err)
		}
		if err := w.Join(t.Context(), "a", pods); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		synctest.Wait()
		for _, name := range []string{"a1", "a2", "a3", "a4", "a5"} {
			s.put(name, "a")
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(busy)
		running.Wait()
	})
}
