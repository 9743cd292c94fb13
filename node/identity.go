package node

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// clockSkew is how far the clocks of a backend and the API server may differ
// when creation times are compared.
const clockSkew = time.Minute

// enoughMatches is how many pods a provider has to show under our UIDs to be taken for
// one that keeps all of them.
const enoughMatches = 3

// identity decides whether a pod that the provider shows under a name is the
// one that the API has under that name, or an older one.
//
// Some providers keep the UIDs that they are given, some have their own, some
// none, and some keep those of the pods that they were given since they started. So
// what is known of one pod is its own (see PodController.isOf): under which UID the
// provider shows it. Only where nothing is known of a pod counts what was seen of
// others: a provider that has shown several under our UIDs, and none under another,
// keeps them, and a different one means a different pod. So does the UID of a pod that the
// node had before. Else only a creation time that is clearly older tells.
type identity struct {
	byUID bool // the provider finds its pods by UID

	mu      sync.Mutex
	matched map[types.UID]struct{} // enoughMatches at most
	differs bool                   // a pod of ours was shown under another UID
	left    map[types.UID]struct{} // rememberedUIDs of the pods that the node had, at most
	order   []types.UID            // of left, a ring
	oldest  int                    // in order
}

// rememberedUIDs is how many pods that have left the node are remembered by their UIDs.
const rememberedUIDs = 1024

// leave records that a pod of the node is no more. What the provider shows under its UID
// from now on is that pod, and not the one that has its name now.
func (i *identity) leave(uid types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.left[uid]; ok || uid == "" {
		return
	}
	if i.left == nil {
		i.left = map[types.UID]struct{}{}
	}
	i.left[uid] = struct{}{}
	if len(i.order) < rememberedUIDs {
		i.order = append(i.order, uid)
		return
	}
	delete(i.left, i.order[i.oldest])
	i.order[i.oldest] = uid
	i.oldest = (i.oldest + 1) % rememberedUIDs
}

// hasLeft reports whether the UID is that of a pod that the node had.
func (i *identity) hasLeft(uid types.UID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, ok := i.left[uid]
	return ok
}

// keeps reports whether the provider keeps the UIDs that it is given.
func (i *identity) keeps() bool {
	if i.byUID {
		return true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.matched) >= enoughMatches && !i.differs
}

// match records that the provider shows a pod under the UID that we gave it.
func (i *identity) match(uid types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.matched == nil {
		i.matched = map[types.UID]struct{}{}
	}
	if len(i.matched) < enoughMatches {
		i.matched[uid] = struct{}{}
	}
}

// differ records that the provider shows a pod of ours under another UID.
func (i *identity) differ() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.differs = true
}

// alike reports whether two pods of one name are the same, as far as their UIDs and
// creation times say. found comes from the provider.
func (i *identity) alike(pod, found *corev1.Pod) bool {
	if found.UID == pod.UID {
		return true
	}
	if found.UID != "" && (i.keeps() || i.hasLeft(found.UID)) {
		return false
	}
	born := found.CreationTimestamp
	return born.IsZero() || !born.Add(clockSkew).Before(pod.CreationTimestamp.Time)
}

// isOf reports whether found, which the provider shows under the record's name, is
// the record's pod. r.mu is held.
func (pc *PodController) isOf(r *podRecord, found *corev1.Pod) bool {
	switch {
	case r.theirs || found.UID == "":
	case found.UID == r.pod.UID:
		r.shownAs = found.UID
		pc.identity.match(found.UID)
	case found.UID == r.shownAs:
		return true
	case r.shownAs == r.pod.UID:
		return false
	}
	return pc.identity.alike(r.pod, found)
}

// shows records under which UID the provider holds the record's pod. r.mu is held.
func (pc *PodController) shows(r *podRecord, found *corev1.Pod) {
	if r.theirs || found.UID == "" || found.UID == r.pod.UID {
		return
	}
	r.shownAs = found.UID
	pc.identity.differ()
}
