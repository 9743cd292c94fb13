package listwatch

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

// A reflector takes a watch for broken that ends before it is a second old, and
// has sent no event.
const brief = time.Second

// Steady returns a ListWatch whose watches are begun again, where they began, if
// the API server ends them at once and without a word. A busy one does that to
// watches that it cannot serve fast enough. A reflector would wait, list
// everything again and so make the API server busier, while its own objects wait;
// it still does if several watches in a row end like that.
//
// Each watch costs a goroutine, so this is for objects that change a lot.
func Steady(lw *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: lw.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			source, err := lw.WatchWithContext(ctx, options)
			if err != nil || options.ResourceVersion == "" {
				return source, err // it began nowhere
			}
			events := make(chan watch.Event)
			proxy := watch.NewProxyWatcher(events)
			go func() { // ends with the watch that is returned, which its reader stops, or ctx
				defer close(events)
				pass(ctx, proxy, events, source, func() (watch.Interface, error) { return lw.WatchWithContext(ctx, options) })
			}()
			return proxy, nil
		},
		DisableChunking: lw.DisableChunking,
	}
}

// pass passes what source says on to events, and then, as long as that is
// nothing, what those say that are begun in its place.
func pass(ctx context.Context, proxy *watch.ProxyWatcher, events chan<- watch.Event, source watch.Interface, begin func() (watch.Interface, error)) {
	pause := periodic.Backoff(brief)
	pause.Duration = 10 * time.Millisecond // the reflector's own objects wait
	for {
		began := time.Now()
		silent := forward(proxy, events, source, nil)
		source.Stop()
		if !silent || time.Since(began) >= brief || pause.Steps == 0 { // the pauses have grown to the longest
			return
		}
		select {
		case <-proxy.StopChan():
			return
		case <-time.After(pause.Step()):
		}
		var err error
		if source, err = begin(); err != nil {
			return // the next watch gets the error
		}
	}
}

// Filter returns a watch with the events of source that keep keeps. Unlike that of
// watch.Filter its goroutine ends with Stop, also while nobody receives an event any more.
func Filter(source watch.Interface, keep func(watch.Event) bool) watch.Interface {
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	go func() { // ends with source, or Stop
		defer close(events)
		defer source.Stop()
		forward(proxy, events, source, keep)
	}()
	return proxy
}

// forward passes on the events of source that keep keeps (nil: all) until source ends or
// is not wanted any more, and reports whether it has ended without such an event.
func forward(proxy *watch.ProxyWatcher, events chan<- watch.Event, source watch.Interface, keep func(watch.Event) bool) (silent bool) {
	silent = true
	for {
		select {
		case event, ok := <-source.ResultChan():
			if !ok {
				return silent
			}
			if keep != nil && !keep(event) {
				continue
			}
			silent = false
			select {
			case events <- event:
			case <-proxy.StopChan():
				return false
			}
		case <-proxy.StopChan():
			return false
		}
	}
}
