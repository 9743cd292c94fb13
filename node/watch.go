package node

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
)

// podEvents has each change of a pod in the API looked at, by the queue that it
// concerns. A change of the status alone, which is nearly always the echo of
// our own patch, does not disturb the delays between provider calls.
func (pc *PodController) podEvents(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok && pc.concerns(ctx, pod) {
				pc.interrupt(ctx, keyOf(pod)) // an older one of that name
				pc.syncs.Add(keyOf(pod))
			}
		},
		UpdateFunc: func(before, after any) {
			was, ok1 := before.(*corev1.Pod)
			pod, ok2 := after.(*corev1.Pod)
			if !ok1 || !ok2 || !pc.concerns(ctx, pod) {
				return
			}
			key := keyOf(pod)
			// Of a resync nothing is new: what waits for its retry goes on waiting.
			resync := was.UID == pod.UID && was.ResourceVersion == pod.ResourceVersion
			switch {
			case was.UID != pod.UID || specChanged(was, pod) || deletionChanged(was, pod) || was.Status.Phase != pod.Status.Phase:
				pc.interrupt(ctx, key)
				pc.syncs.Add(key)
			case resync:
				pc.syncs.AddUnlessDelayed(key)
			}
			if resync && pod.ResourceVersion != "" {
				pc.statuses.AddUnlessDelayed(key)
			} else {
				pc.statuses.Add(key)
			}
		},
		DeleteFunc: func(obj any) {
			gone, missing := obj.(cache.DeletedFinalStateUnknown)
			if missing {
				obj = gone.Obj
			}
			// Also where there is no record: a worker may have read the pod a moment
			// ago, and be about to make one.
			if pod, ok := obj.(*corev1.Pod); ok && pc.concerns(ctx, pod) {
				if missing {
					pc.doubts.Store(keyOf(pod), struct{}{}) // a list lacks it, which is no deletion yet
				}
				pc.interrupt(ctx, keyOf(pod))
				pc.syncs.Add(keyOf(pod))
			}
		},
	}
}

// concerns tells whether a pod is this node's, or was.
func (pc *PodController) concerns(ctx context.Context, pod *corev1.Pod) bool {
	return pc.owns(ctx, pod) || pc.records.get(keyOf(pod)) != nil
}

// specChanged tells whether a pod changed in what a provider is given.
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

func deletionChanged(was, pod *corev1.Pod) bool {
	return !was.DeletionTimestamp.Equal(pod.DeletionTimestamp)
}

func keyOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
