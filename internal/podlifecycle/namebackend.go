package podlifecycle

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nameBackend makes a provider that goes by names one that goes by UIDs. A name means
// one pod to such a provider. nameBackend knows which of the controller's that is: its
// holder, from the moment when it is given to the provider, or found there, until it is
// over. Meanwhile the provider is not asked about another pod of the name, let alone to
// delete it.
//
// Some of these providers keep the UIDs that they are given, some have their own, some
// none, and some keep those of the pods that they were given since they started. So
// what is known of one pod is its own: under which UID the provider shows it. Only
// where nothing is known of a pod counts what was seen of others: a provider that has
// shown several under our UIDs, and none under another, keeps them, and a different one
// means a different pod. So does the UID of a pod that the node had before. Otherwise
// only a creation time that is clearly older distinguishes two pods of a name.
//
// A provider may go on showing a pod for a while that is over. For as long as clocks may
// differ nothing that it shows under the name is taken for another pod, unless it was
// given that.
type nameBackend struct {
	*backend
	// current returns the node's pod of a name in the API, or nil.
	current func(types.NamespacedName) *corev1.Pod

	mu      sync.Mutex
	holders map[types.NamespacedName]*holder
	over    []types.NamespacedName // those whose holders are over, the oldest first
	uids    uidHabits
}

// holder is the controller's pod that a name means to the provider.
type holder struct {
	id     types.UID
	uid    types.UID // the API's; of an orphan, what the provider shows
	orphan bool
	born   metav1.Time
	// shownAs is the UID under which the provider shows it; empty: not known.
	shownAs types.UID
	// over is since when neither the API nor the provider has it; zero: it may.
	over time.Time
}

// clockSkew is how far the clocks of a backend and the API server may differ when
// creation times are compared.
const clockSkew = time.Minute

// clearlyOlder reports whether what the provider shows was created before a pod was.
func clearlyOlder(shown *corev1.Pod, born metav1.Time) bool {
	at := shown.CreationTimestamp
	return !at.IsZero() && at.Add(clockSkew).Before(born.Time)
}

func newNameBackend(b *backend, current func(types.NamespacedName) *corev1.Pod) *nameBackend {
	return &nameBackend{backend: b, current: current, holders: map[types.NamespacedName]*holder{}}
}

func (b *nameBackend) create(ctx context.Context, pod *corev1.Pod) error {
	b.mu.Lock()
	name, h := nameOf(pod), &holder{id: pod.UID, uid: pod.UID, born: pod.CreationTimestamp}
	if before := b.holder(name); before != nil && before.uid != "" && before.shownAs == before.uid {
		h.shownAs = pod.UID // the provider has kept the UID of the one before
	}
	b.holders[name] = h
	b.mu.Unlock()
	return b.backend.create(ctx, pod)
}

func (b *nameBackend) delete(ctx context.Context, id types.UID, pod *corev1.Pod, grace time.Duration) (bool, error) {
	b.mu.Lock()
	h := b.holder(nameOf(pod))
	b.mu.Unlock()
	if h != nil && h.over.IsZero() && h.id != id {
		return false, nil // by this name the provider would delete another pod
	}
	return b.deletePod(ctx, pod, grace)
}

func (b *nameBackend) find(ctx context.Context, id types.UID, pod *corev1.Pod, coming bool) (found, namesake *corev1.Pod, err error) {
	name := nameOf(pod)
	b.mu.Lock()
	h := b.holder(name)
	b.mu.Unlock()
	if h != nil && h.id != id {
		return nil, nil, nil // the name means another pod, and this one was not given to the provider yet
	}
	shown, err := b.findPod(ctx, pod, coming)
	if err != nil || shown == nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h == nil {
		h = &holder{id: id, uid: pod.UID, born: pod.CreationTimestamp}
	}
	if !b.isHolder(h, shown) {
		return nil, shown, nil
	}
	return shown, nil, nil
}

func (b *nameBackend) identify(shown *corev1.Pod) identity {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := nameOf(shown)
	h := b.holder(name)
	if h != nil && h.over.IsZero() {
		return identity{id: h.id, is: b.isHolder(h, shown)}
	}
	pod := b.current(name)
	switch {
	case pod != nil && h != nil:
		return identity{id: pod.UID, is: shown.UID == pod.UID}
	case pod != nil:
		if shown.UID == pod.UID {
			b.uids.matched(shown.UID)
		}
		return identity{id: pod.UID, is: b.uids.alike(pod.UID, pod.CreationTimestamp, shown)}
	}
	return identity{unknown: h == nil}
}

func (b *nameBackend) mayBe(pod, shown *corev1.Pod) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return shown.Spec.NodeName == "" || b.uids.alike(pod.UID, pod.CreationTimestamp, shown)
}

func (b *nameBackend) hold(id types.UID, pod, shown *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := nameOf(pod)
	h := b.holder(name)
	switch {
	case h != nil && h.id == id:
		h.over = time.Time{} // it is back
	case h != nil && h.over.IsZero():
		return // the name means another pod by now
	default:
		h = &holder{id: id, uid: pod.UID, born: pod.CreationTimestamp}
		b.holders[name] = h
	}
	if h.orphan || shown.UID == "" {
		return
	}
	h.shownAs = shown.UID
	b.uids.differ = b.uids.differ || shown.UID != pod.UID
}

func (b *nameBackend) adopt(shown *corev1.Pod, namesake bool) (types.UID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := nameOf(shown)
	if !namesake && (b.holder(name) != nil || b.current(name) != nil) {
		return "", false
	}
	h := &holder{id: idOf(shown), uid: shown.UID, born: shown.CreationTimestamp, orphan: true}
	b.holders[name] = h
	return h.id, true
}

func (b *nameBackend) forget(id types.UID, pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uids.leave(pod.UID)
	name := nameOf(pod)
	if h := b.holder(name); h != nil && h.id == id {
		h.over = time.Now()
		b.over = append(b.over, name)
	}
}

// holder returns that of a name, or nil, and drops those that have been over for long
// enough. b.mu is held.
func (b *nameBackend) holder(name types.NamespacedName) *holder {
	for len(b.over) > 0 {
		if h := b.holders[b.over[0]]; h != nil && !h.over.IsZero() {
			if time.Since(h.over) < clockSkew {
				break
			}
			delete(b.holders, b.over[0])
		}
		b.over = b.over[1:]
	}
	return b.holders[name]
}

// isHolder reports whether what the provider shows under a name is its holder. b.mu is
// held.
func (b *nameBackend) isHolder(h *holder, shown *corev1.Pod) bool {
	switch {
	case h.orphan || shown.UID == "":
	case shown.UID == h.uid:
		h.shownAs = shown.UID
		b.uids.matched(shown.UID)
	case shown.UID == h.shownAs:
		return true
	case h.shownAs == h.uid:
		return false
	}
	return b.uids.alike(h.uid, h.born, shown)
}

var _ podBackend = (*nameBackend)(nil)

// uidHabits is what was seen of how a provider goes about UIDs.
type uidHabits struct {
	matches map[types.UID]struct{} // pods shown under our UIDs, enoughMatches at most
	differ  bool                   // a pod of ours was shown under another UID
	left    map[types.UID]struct{} // rememberedUIDs of the pods that the node had, at most
	order   []types.UID            // of left, a ring
	oldest  int                    // in order
}

const (
	// enoughMatches is how many pods a provider has to show under our UIDs to be taken
	// for one that keeps all of them.
	enoughMatches = 3
	// rememberedUIDs is how many pods that have left the node are remembered by their
	// UIDs.
	rememberedUIDs = 1024
)

// leave records that a pod of the node is no more. What the provider shows under its UID
// from now on is that pod, and not the one that has its name now.
func (u *uidHabits) leave(uid types.UID) {
	if _, ok := u.left[uid]; ok || uid == "" {
		return
	}
	if u.left == nil {
		u.left = map[types.UID]struct{}{}
	}
	u.left[uid] = struct{}{}
	if len(u.order) < rememberedUIDs {
		u.order = append(u.order, uid)
		return
	}
	delete(u.left, u.order[u.oldest])
	u.order[u.oldest] = uid
	u.oldest = (u.oldest + 1) % rememberedUIDs
}

// keeps reports whether the provider keeps the UIDs that it is given.
func (u *uidHabits) keeps() bool { return len(u.matches) >= enoughMatches && !u.differ }

// matched records that the provider shows a pod under the UID that we gave it.
func (u *uidHabits) matched(uid types.UID) {
	if u.matches == nil {
		u.matches = map[types.UID]struct{}{}
	}
	if len(u.matches) < enoughMatches {
		u.matches[uid] = struct{}{}
	}
}

// alike reports whether what the provider shows is a pod, as far as their UIDs and
// creation times say.
func (u *uidHabits) alike(uid types.UID, born metav1.Time, shown *corev1.Pod) bool {
	if shown.UID == uid {
		return true
	}
	if _, left := u.left[shown.UID]; shown.UID != "" && (left || u.keeps()) {
		return false
	}
	return !clearlyOlder(shown, born)
}
