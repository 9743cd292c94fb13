package eci

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// staleEventInterval is the minimum interval between events that the volumes of a pod
// are not up to date.
const staleEventInterval = time.Hour

// podVolumesMap is the state of the volumes of pods, by UID. It is safe for concurrent
// use; its zero value is empty.
type podVolumesMap struct {
	mu   sync.Mutex
	pods map[types.UID]*podVolumes
}

// podVolumes is the state of the volumes of a pod's group.
type podVolumes struct {
	scheduled   bool              // the queue has the pod's next refresh
	applied     map[string]string // the volume parameters that were last applied; nil if unknown
	unconfirmed bool              // whether the last update may not have arrived
	warned      time.Time         // when an event last reported that they are not up to date; zero if they are
}

// update calls do with the state of a pod, which may be new.
func (f *podVolumesMap) update(uid types.UID, do func(*podVolumes)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pods == nil {
		f.pods = map[types.UID]*podVolumes{}
	}
	if f.pods[uid] == nil {
		f.pods[uid] = &podVolumes{}
	}
	do(f.pods[uid])
}

// get returns a copy of the state of a pod.
func (f *podVolumesMap) get(uid types.UID) (known podVolumes) {
	f.update(uid, func(pod *podVolumes) { known = *pod })
	return known
}

func (f *podVolumesMap) isScheduled(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[uid] != nil && f.pods[uid].scheduled
}

// recordApplied records the volume parameters that the API has accepted.
func (f *podVolumesMap) recordApplied(uid types.UID, volumes map[string]string) {
	f.update(uid, func(pod *podVolumes) { pod.scheduled, pod.applied, pod.unconfirmed = true, volumes, false })
}

// recordUpToDate records that the volumes are up to date.
func (f *podVolumesMap) recordUpToDate(uid types.UID) {
	f.update(uid, func(pod *podVolumes) { pod.warned = time.Time{} })
}

// recordStale records that the volumes are not up to date, and reports whether to
// record an event.
func (f *podVolumesMap) recordStale(uid types.UID) (record bool) {
	f.update(uid, func(pod *podVolumes) {
		if record = pod.warned.IsZero() || time.Since(pod.warned) >= staleEventInterval; record {
			pod.warned = time.Now()
		}
	})
	return record
}

// prune drops all pods but those in keep, and returns the UIDs of the dropped ones.
func (f *podVolumesMap) prune(keep map[types.UID]bool) (gone []types.UID) {
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
