package podgroup

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// The delay before the units are listed and watched again: after a stream that lasted
	// longer than the delay before it, and at most.
	firstWatchRetry = time.Second
	lastWatchRetry  = time.Minute
)

// watchingProvider is the Provider of a Watcher: it notifies of changes.
type watchingProvider struct {
	*Provider
	watcher Watcher

	mu     sync.Mutex // notifications come in the order of the changes
	notify func(*corev1.Pod)
}

// NotifyPods implements node.PodNotifier.
func (w *watchingProvider) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	ctx, end, err := w.begin(ctx)
	if err != nil {
		return // it is closed
	}
	w.setNotify(notify)
	go func() { // ends with ctx or the provider
		defer end()
		defer w.setNotify(func(*corev1.Pod) {})
		w.watch(ctx)
	}()
}

func (w *watchingProvider) setNotify(notify func(*corev1.Pod)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notify = notify
}

// watch lists and watches until ctx ends.
func (w *watchingProvider) watch(ctx context.Context) {
	delay := firstWatchRetry
	for ctx.Err() == nil {
		lasted, err := w.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if lasted > delay { // some services end all streams after a while
			delay = firstWatchRetry
		}
		if err != nil {
			log.G(ctx).WithError(err).WithField("service", w.opts.Service).Warn("The watch of units has ended; listing them again")
		}
		named, _ := errdefs.RetryAfter(err)
		if periodic.Sleep(ctx, max(delay, named)) != nil {
			return
		}
		delay = min(2*delay, lastWatchRetry)
	}
}

// watchOnce lists the units, and watches until the stream ends.
func (w *watchingProvider) watchOnce(ctx context.Context) (lasted time.Duration, err error) {
	if err := w.units.ensure(ctx, newness{}); err != nil {
		return 0, err
	}
	position := w.units.setWatched(true)
	defer w.units.setWatched(false)
	began := time.Now()
	err = w.calls.open(ctx, ActionWatch, func(ctx context.Context) error {
		return w.watcher.Watch(ctx, position, w.changed)
	})
	return time.Since(began), err
}

// listed notifies of all units of a list, which may differ from what events have shown.
func (w *watchingProvider) listed(stopped []Unit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.notify == nil {
		return
	}
	for i := range stopped {
		stopped[i].Phase = Gone
	}
	for _, found := range slices.AppendSeq(stopped, maps.Values(w.units.snapshot())) {
		if w.units.owner.isOurs(&found) {
			w.report(&found)
		}
	}
}

// changed applies an event.
func (w *watchingProvider) changed(found Unit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.units.apply(found)
	if !ok || !w.units.owner.isOurs(&found) {
		return
	}
	w.events.recordOne(&found, w.opts.Identity.Node)
	w.report(&found)
}

// report notifies of a unit. Of a pod that the cache lacks, as before it has synced, only the end
// of the unit counts: which containers it has, and whether they are started again, is not known.
// w.mu is held.
func (w *watchingProvider) report(u *Unit) {
	if pod, known := w.pod(u); known || u.Over() {
		w.notify(pod)
	}
}
