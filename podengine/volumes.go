package podengine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// refreshVolumes rewrites what has changed in the volumes of a pod that runs. It
// returns when that is next due.
func (w *worker) refreshVolumes(ctx context.Context, pod *corev1.Pod, seen *runtimeView, now time.Time) time.Time {
	never := now.Add(24 * time.Hour)
	if seen.sandbox() == nil {
		return never
	}
	if !w.stale && now.Before(w.refresh) {
		return w.refresh
	}
	w.stale = false
	if !w.mounted { // after a restart of this process
		if err := w.prepareVolumes(ctx, pod); err != nil {
			w.refresh = now.Add(lastRetry)
		}
		return w.refresh
	}
	due, err := w.engine.volumes.Refresh(ctx, pod)
	if ctx.Err() == nil {
		w.volumeWarnings(pod, err, nil)
	}
	if due.IsZero() {
		due = never
	}
	w.refresh = due
	return due
}
