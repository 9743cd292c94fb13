package podgroup

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// lateUnit is the pod of a creation that failed, and when.
type lateUnit struct {
	pod *corev1.Pod
	at  time.Time
}

// get requests the units of the pods of the node.
func (u *units) get(ctx context.Context, getter Getter) (all []Unit, err error) {
	pods, err := u.pods.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, isOver)
	known := map[types.UID]bool{}
	for _, pod := range pods {
		known[pod.UID] = true
	}
	u.mu.Lock()
	maps.DeleteFunc(u.late, func(_ types.UID, late lateUnit) bool { return time.Since(late.at) > lateMaxAge })
	for uid, late := range u.late {
		if !known[uid] {
			pods = append(pods, late.pod)
		}
	}
	u.mu.Unlock()
	if len(pods) == 0 {
		return nil, nil
	}
	err = u.calls.do(ctx, ActionList, func(ctx context.Context) (err error) {
		all, err = getter.Get(ctx, pods)
		return err
	})
	return all, err
}

// getOne returns the unit of a pod of a backend without a list: from the last answers, or
// by asking for it alone, also if the pod has ended. One that may exist is there once the pod is deleted,
// so that the backend gets the deletion.
func (u *units) getOne(ctx context.Context, getter Getter, namespace, name string, uid types.UID, notFound error) (Unit, error) {
	pod, err := u.pods.Pods(namespace).Get(name)
	u.mu.Lock()
	if err != nil || uid != "" && pod.UID != uid {
		pod = u.late[uid].pod
	}
	if pod == nil {
		u.mu.Unlock()
		return Unit{}, notFound
	}
	found, ok := u.cached[pod.UID]
	fresh := time.Since(u.ended) < u.cacheFor
	u.mu.Unlock()
	if ok && fresh {
		return found, nil
	}
	found, err = u.getPod(ctx, getter, pod, notFound)
	if errdefs.IsOnlyNotFound(err) && pod.DeletionTimestamp != nil && u.unsureFor(pod.UID) > 0 {
		return Unit{ID: string(pod.UID), Owner: OwnerOf(pod), Unknown: true, Data: pod}, nil
	}
	return found, err
}

// getPod asks a backend without a list for the unit of a pod, which the cache of pods need
// not have any more.
func (u *units) getPod(ctx context.Context, getter Getter, pod *corev1.Pod, notFound error) (Unit, error) {
	var all []Unit
	err := u.calls.do(ctx, ActionList, func(ctx context.Context) (err error) {
		all, err = getter.Get(ctx, []*corev1.Pod{pod})
		return err
	})
	if err != nil {
		return Unit{}, err
	}
	for _, found := range all {
		if found.Owner.UID == pod.UID {
			return found, nil
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if created, ok := u.created[pod.UID]; ok && time.Since(created.at) < createdMaxAge {
		return created.Unit, nil
	}
	return Unit{}, notFound
}
