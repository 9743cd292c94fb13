package podgroup

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// The delay before the units are listed and watched again: after a stream that lasted,
	// and at most.
	firstWatchRetry = time.Second
	lastWatchRetry  = time.Minute
)

// watchingProvider is the Provider of a Watcher: it notifies of changes.
type watchingProvider struct {
	*Provider
	watcher Watcher
}

// NotifyPods implements node.PodNotifier.
func (w *watchingProvider) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	w.work.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(w.ctx, cancel)()
		w.watch(ctx, notify)
	})
}

// watch lists and watches until ctx ends.
func (w *watchingProvider) watch(ctx context.Context, notify func(*corev1.Pod)) {
	delay := firstWatchRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := w.watchOnce(ctx, notify)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastWatchRetry {
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

// watchOnce lists the units, notifies of all of them, and watches until the stream ends.
func (w *watchingProvider) watchOnce(ctx context.Context, notify func(*corev1.Pod)) error {
	if err := w.units.ensure(ctx, 0, time.Time{}); err != nil {
		return err
	}
	for _, found := range w.units.snapshot() {
		if w.units.owner.isOurs(&found) {
			notify(w.pod(&found))
		}
	}
	position := w.units.setWatched(true)
	defer w.units.setWatched(false)
	return w.calls.open(ctx, ActionWatch, func(ctx context.Context) error {
		return w.watcher.Watch(ctx, position, func(found Unit) { w.changed(found, notify) })
	})
}

// changed applies an event.
func (w *watchingProvider) changed(found Unit, notify func(*corev1.Pod)) {
	found, ok := w.units.apply(found)
	if !ok || !w.units.owner.isOurs(&found) {
		return
	}
	w.events.recordOne(&found, w.opts.Identity.Node)
	notify(w.pod(&found))
}
