package podengine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

// refreshVolumes rewrites what has changed in the volumes of a pod that runs. It
// returns when that is next due.
func (w *worker) refreshVolumes(ctx context.Context, pod *corev1.Pod, seen *runtimeView, now time.Time) time.Time {
	if seen.sandbox() == nil {
		return now.Add(24 * time.Hour)
	}
	if !w.stale && now.Before(w.refresh) {
		return w.refresh
	}
	w.stale = false
	if !w.mounted { // after a restart of this process
		if err := w.prepareVolumes(ctx, pod, seen); err != nil {
			w.refresh = now.Add(lastRetry)
		}
		return w.refresh
	}
	return w.refreshPrepared(ctx, pod, now)
}

// refreshPrepared is refreshVolumes of volumes that are there, at once.
func (w *worker) refreshPrepared(ctx context.Context, pod *corev1.Pod, now time.Time) time.Time {
	due, err := w.engine.volumes.Refresh(ctx, pod)
	if ctx.Err() == nil {
		w.volumeWarnings(pod, err, nil)
	}
	if due.IsZero() {
		due = now.Add(24 * time.Hour)
	}
	w.refresh = due
	return due
}

// whileRefreshing does a part of an action that may take long, and has nothing to do with volumes.
// Meanwhile those of the pod are refreshed when they are due: it may have containers that run.
func (w *worker) whileRefreshing(ctx context.Context, do func()) {
	if !w.mounted {
		do()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	// Most parts take less than a second, and would break off a refresh that had just begun. Until wait returns, it has what is otherwise the worker's goroutine's.
	wait := periodic.Run(ctx, max(time.Until(w.refresh), time.Second), func(ctx context.Context) time.Duration {
		pod, _ := w.current()
		next := w.refreshPrepared(ctx, pod, time.Now())
		w.stale = w.stale || ctx.Err() != nil // it may have been broken off
		return max(time.Until(next), 0)
	})
	defer wait()
	defer cancel()
	do()
}
