package listwatch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// busy is an API server that ends the first watches as soon as they have begun.
type busy struct {
	ends int

	mu      sync.Mutex
	lists   int
	began   []string // resource versions
	streams []*watch.RaceFreeFakeWatcher
}

// IsWatchListSemanticsUnSupported has a reflector list, and then watch.
func (b *busy) IsWatchListSemanticsUnSupported() bool { return true }

func (b *busy) listWatch() *cache.ListWatch {
	return listwatch.Steady(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lists++
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.began = append(b.began, options.ResourceVersion)
			stream := watch.NewRaceFreeFake()
			b.streams = append(b.streams, stream)
			if len(b.streams) <= b.ends {
				stream.Stop()
			}
			return stream, nil
		},
	})
}

// A reflector goes on where it was, and soon, when the API server ends a watch
// that has sent no event yet.
func TestSilentWatchesAreBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &busy{ends: 4}
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			lw := cache.ToListWatcherWithWatchListSemantics(api.listWatch(), api)
			cache.NewReflectorWithOptions(lw, &corev1.Pod{}, store, cache.ReflectorOptions{}).RunWithContext(ctx)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		api.mu.Lock()
		for _, version := range api.began {
			if version != "7" {
				t.Errorf("a watch began at %q", version)
			}
		}
		if len(api.began) != 5 || api.lists != 1 {
			t.Fatalf("%d watches, %d lists, want 5 and 1", len(api.began), api.lists)
		}
		api.streams[4].Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "8"}})
		api.mu.Unlock()
		synctest.Wait()
		if got := store.ListKeys(); len(got) != 1 {
			t.Errorf("the store has %q", got)
		}
		cancel()
		<-done
		synctest.Wait()
		if !api.streams[4].IsStopped() {
			t.Error("the last watch was not stopped")
		}
	})
}

// A reflector that gets nowhere lists again, as it would anyway.
func TestWatchesThatAlwaysEndAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &busy{ends: 1000}
		w, err := api.listWatch().WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
		if err != nil {
			t.Fatal(err)
		}
		if event, ok := <-w.ResultChan(); ok {
			t.Errorf("got %v", event)
		}
		if len(api.began) > 10 {
			t.Errorf("%d watches", len(api.began))
		}
	})
}

// A watch that has spoken ends as it would by itself: the reflector knows where to
// go on, and that is not where it began.
func TestWatchesThatHaveSpokenAreNotBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &busy{}
		w, err := api.listWatch().WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
		if err != nil {
			t.Fatal(err)
		}
		api.streams[0].Add(&corev1.Pod{})
		if event := <-w.ResultChan(); event.Type != watch.Added {
			t.Errorf("got %v", event)
		}
		api.streams[0].Stop()
		if event, ok := <-w.ResultChan(); ok {
			t.Errorf("got %v", event)
		}
		if len(api.began) != 1 {
			t.Errorf("%d watches", len(api.began))
		}
	})
}
