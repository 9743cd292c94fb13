package eci

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// tellStaleAgain is after how long an event says again that the volumes of a pod
// are not up to date.
const tellStaleAgain = time.Hour

// followedPods are the pods with volumes that the provider writes. It is safe for
// concurrent use; its zero value has none.
type followedPods struct {
	mu   sync.Mutex
	pods map[types.UID]*followedPod
}

// followedPod is what is known of the volumes of a pod's group.
type followedPod struct {
	takenUp bool              // the queue has the pod's next refresh
	given   map[string]string // the volumes as the API was given them; nil if that is not known
	unsure  bool              // whether the API took what it was given last
	told    time.Time         // when an event said that they are not up to date; zero if they are
}

// with calls do with what is known of a pod, which may be nothing.
func (f *followedPods) with(uid types.UID, do func(*followedPod)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pods == nil {
		f.pods = map[types.UID]*followedPod{}
	}
	if f.pods[uid] == nil {
		f.pods[uid] = &followedPod{}
	}
	do(f.pods[uid])
}

// get returns a copy of what is known of a pod.
func (f *followedPods) get(uid types.UID) (known followedPod) {
	f.with(uid, func(pod *followedPod) { known = *pod })
	return known
}

func (f *followedPods) isTakenUp(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[uid] != nil && f.pods[uid].takenUp
}

// gave says what the API has taken.
func (f *followedPods) gave(uid types.UID, volumes map[string]string) {
	f.with(uid, func(pod *followedPod) { pod.takenUp, pod.given, pod.unsure = true, volumes, false })
}

// fresh says that the volumes are up to date.
func (f *followedPods) fresh(uid types.UID) {
	f.with(uid, func(pod *followedPod) { pod.told = time.Time{} })
}

// staleSince says that they are not, and tells whether that is to be told.
func (f *followedPods) staleSince(uid types.UID) (tell bool) {
	f.with(uid, func(pod *followedPod) {
		if tell = pod.told.IsZero() || time.Since(pod.told) >= tellStaleAgain; tell {
			pod.told = time.Now()
		}
	})
	return tell
}

// prune forgets all pods but those, and returns the others.
func (f *followedPods) prune(keep map[types.UID]bool) (gone []types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range f.pods {
		if !keep[uid] {
			delete(f.pods, uid)
			gone = append(gone, uid)
		}
	}
	return gone
}
