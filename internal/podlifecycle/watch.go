package podlifecycle

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// podEvents has each change of a pod in the API looked at, by the queue that it
// concerns. A change of the status alone, which is nearly always the echo of
// our own patch, does not disturb the delays between provider calls.
func (pc *Controller) podEvents(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok && pc.cfg.PodEventFilter(ctx, pod) {
				pc.appears(ctx, pod)
			}
		},
		UpdateFunc: func(before, after any) {
			was, ok1 := before.(*corev1.Pod)
			pod, ok2 := after.(*corev1.Pod)
			if !ok1 || !ok2 {
				return
			}
			if was.UID != pod.UID && !older(pod, was) {
				pc.isGone(was) // its deletion was overlooked; an older state says nothing of it
			}
			if !pc.cfg.PodEventFilter(ctx, pod) { // it may have taken the name of one of ours
				pc.lookAt(ctx, nameOf(pod))
				return
			}
			r := pc.records.get(pod.UID)
			if r == nil && was.UID == pod.UID && !pc.isCurrent(pod) {
				return // it has left the cache, and its record was dropped
			}
			if r == nil || was.UID != pod.UID {
				pc.appears(ctx, pod) // in the place of the one before
				return
			}
			if older(pod, was) {
				r.restored(pod)
			}
			// Of a resync nothing is new: what waits for its retry goes on waiting.
			resync := was.ResourceVersion == pod.ResourceVersion
			switch {
			case specChanged(was, pod) || !was.DeletionTimestamp.Equal(pod.DeletionTimestamp) || was.Status.Phase != pod.Status.Phase:
				pc.interrupt(ctx, r)
				pc.syncs.Add(r.key())
			case resync:
				pc.syncs.AddUnlessDelayed(r.key())
			}
			if resync && pod.ResourceVersion != "" {
				pc.statuses.AddUnlessDelayed(r.key())
			} else {
				pc.statuses.Add(r.key())
			}
		},
		DeleteFunc: func(obj any) {
			last, missing := obj.(cache.DeletedFinalStateUnknown)
			if missing {
				obj = last.Obj
			}
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return
			}
			if !missing { // else a list lacks it, which is no deletion yet
				pc.isGone(pod)
			}
			if r := pc.records.get(pod.UID); r != nil {
				pc.interrupt(ctx, r)
				pc.syncs.Add(r.key())
			}
		},
	}
}

// isGone records that the API has reported that it does not have a pod any more.
func (pc *Controller) isGone(pod *corev1.Pod) {
	if r := pc.records.get(pod.UID); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gone = true
	}
}

// appears has a pod looked at that the API shows for the first time, and those of its
// name, which it does not show any more.
func (pc *Controller) appears(ctx context.Context, pod *corev1.Pod) {
	if r, added := pc.records.getOrAdd(pod.UID, pod, false); !added {
		pc.statuses.Add(r.key()) // what was reported while the API did not show it
	}
	pc.lookAt(ctx, nameOf(pod))
}

// lookAt has all pods of a name looked at.
func (pc *Controller) lookAt(ctx context.Context, name types.NamespacedName) {
	for _, one := range pc.records.named(name) {
		pc.interrupt(ctx, one)
		pc.syncs.Add(one.key())
	}
}

// specChanged reports whether a pod changed in what a provider is given.
func specChanged(was, pod *corev1.Pod) bool {
	if was == pod {
		return false
	}
	if !maps.Equal(was.Labels, pod.Labels) || !maps.Equal(was.Annotations, pod.Annotations) {
		return true
	}
	if was.Generation != 0 && pod.Generation != 0 {
		return was.Generation != pod.Generation
	}
	return !equality.Semantic.DeepEqual(&was.Spec, &pod.Spec) // API servers before 1.33
}
